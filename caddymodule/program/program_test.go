package program

import "testing"

func TestNamed(t *testing.T) {
	Name = name("/usr/bin/postern.exe")
	defer func() { Name = name("program.test") }()
	for text, want := range map[string]string{
		"run `caddy reload`, then `caddy gateway up`": "run `postern reload`, then `postern gateway up`",
		"the Caddyfile of Caddy, /run/caddy/admin":    "the Caddyfile of Caddy, /run/caddy/admin",
	} {
		if got := Named(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
