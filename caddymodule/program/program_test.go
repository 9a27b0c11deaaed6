package program

import "testing"

func TestNamedAsTyped(t *testing.T) {
	defer func(before string) { Typed = before }(Typed)
	for started, want := range map[string]string{
		"bin/caddy": "bin/caddy gateway status", "caddy": "caddy gateway status",
		"/tmp/x/program.test":   "caddy gateway status",
		"/opt/my gateway/caddy": "caddy gateway status",
	} {
		Typed = typed(started)
		if got := NamedAsTyped("caddy gateway status"); got != want {
			t.Errorf("%s: %q, want %q", started, got, want)
		}
	}
}

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
