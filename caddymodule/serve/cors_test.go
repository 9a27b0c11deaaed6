package serve

import "testing"

func TestNewCORS(t *testing.T) {
	for _, origin := range []string{
		"", "null", "chat.example.com", "https://", "https://chat.example.com/", "https://chat.example.com/a",
		"https://Chat.example.com",
		"https://user@chat.example.com", "https://chat.example.com?", "//chat.example.com",
	} {
		if _, err := NewCORS([]string{origin}); err == nil {
			t.Errorf("%q is taken", origin)
		}
	}
	for _, origin := range []string{
		"*", "http://localhost:3000", "https://[::1]:8443", "chrome-extension://abcdef",
		"tauri://localhost",
	} {
		if _, err := NewCORS([]string{origin}); err != nil {
			t.Error(err)
		}
	}
}
