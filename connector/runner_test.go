package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postern-dev/postern/connector/link"
)

// A new token goes only into the file that has the old one.
func TestKeepToken(t *testing.T) {
	token := link.Token{Server: "127.0.0.1:1", Pin: strings.Repeat("A", 43), Connector: "con_1", Secret: "0ld"}
	old := token.Encode()
	token.Secret = "n3w"
	renewed := token.Encode()
	dir := t.TempDir()
	path := filepath.Join(dir, "connector.json")
	for _, c := range []struct {
		name, config, credentials, text, err string
	}{
		{"a file", path, "", `{"tunnel_token":"` + old + `","upstream":"http://localhost:1"}`, ""},
		{"a file beside credentials", path, dir + "x", `{"tunnel_token":"` + old + `","upstream":"http://localhost:1"}`, ""},
		{"the environment", "", "", "", "comes from the environment"},
		{"the environment and a file", path, "", `{"upstream":"http://localhost:1"}`, "comes from the environment"},
		{"a copy of systemd", path, dir, `{"tunnel_token":"` + old + `","upstream":"http://localhost:1"}`, "LoadCredential="},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			getenv := func(name string) string { return map[string]string{"CREDENTIALS_DIRECTORY": c.credentials}[name] }
			err := runOptions{config: c.config}.keepToken(getenv)(old, renewed)
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			want := c.text
			if c.err == "" {
				want = strings.Replace(want, old, renewed, 1)
			}
			if text, err := os.ReadFile(path); err != nil || string(text) != want {
				t.Errorf("the file is %q, %v", text, err)
			}
		})
	}
}
