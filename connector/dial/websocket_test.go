package dial

import (
	"testing"

	"github.com/postern-dev/postern/connector/link"
)

func TestWebSocketAddress(t *testing.T) {
	for _, test := range []struct{ base, server, want string }{
		{"https://gw.example.com", "udp.example.com:7443", "https://gw.example.com" + link.WebSocketPath},
		{"http://localhost:8080/", "localhost:7443", "http://localhost:8080" + link.WebSocketPath},
		{"", "gw.example.com:7443", "https://gw.example.com" + link.WebSocketPath},
		{"", "[2001:db8::1]:7443", "https://[2001:db8::1]" + link.WebSocketPath},
	} {
		if got := NewWebSocket(Target{URL: test.base, Server: test.server}).Address; got != test.want {
			t.Errorf("%+v: %s", test, got)
		}
	}
}
