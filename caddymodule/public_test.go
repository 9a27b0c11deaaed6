package caddymodule

import (
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
)

// TestEndpoint checks what the gateway finds out about its own address.
func TestEndpoint(t *testing.T) {
	const consoleElsewhere = "gw.example.com {\n model_gateway\n}\nadmin.example.com:8443 {\n model_console\n}"
	for _, test := range []struct{ name, file, public, url, console string }{
		{"one site", "gw.example.com {\n model_gateway\n}", "gw.example.com:7443", "https://gw.example.com", ""},
		{"beside another", "gw.example.com {\n model_gateway\n}\nwww.example.com {\n respond ok\n}", "gw.example.com:7443", "https://gw.example.com", ""},
		{"ports", "{\n model_gateway {\n  listen :9443\n }\n}\nhttps://gw.example.com:8443 {\n model_gateway\n}", "gw.example.com:9443", "https://gw.example.com:8443", ""},
		{"plain HTTP", "http://gw.example.com:8080 {\n model_gateway\n}", "gw.example.com:7443", "http://gw.example.com:8080", ""},
		{"loopback names", "http://localhost:8080, http://127.0.0.1:8080, http://[::1]:8080 {\n model_gateway\n}", "localhost:7443", "http://localhost:8080", ""},
		{"HTTP and HTTPS", "http://gw.example.com:8080, https://gw.example.com:8443, https://gw.example.com:9443 {\n model_gateway\n model_console\n}", "gw.example.com:7443", "https://gw.example.com:8443", "https://gw.example.com:8443/console/"},
		{"two sites", "a.example.com, b.example.com {\n model_gateway\n}", "", "", ""},
		{
			"two names, public one of them",
			"{\n model_gateway {\n  public b.example.com:7443\n }\n}\na.example.com, b.example.com {\n model_gateway\n model_console\n}",
			"b.example.com:7443", "https://b.example.com", "https://b.example.com/console/",
		},
		{"no host", ":8080 {\n model_gateway\n}", "", "", ""},
		{"public", "{\n model_gateway {\n  public gw.example.net\n }\n}\n:8080 {\n model_gateway\n}", "gw.example.net:7443", "", ""},
		{"long form", "gw.example.com {\n route /v1/* {\n  model_auth\n  model_dialect\n  model_route\n }\n}", "gw.example.com:7443", "https://gw.example.com", ""},
		{"console", "gw.example.com {\n model_gateway\n model_console\n}", "gw.example.com:7443", "https://gw.example.com", "https://gw.example.com/console/"},
		{"console elsewhere", consoleElsewhere, "gw.example.com:7443", "https://gw.example.com", "https://admin.example.com:8443/console/"},
		{"console for some", "gw.example.com {\n model_gateway\n @in remote_ip 10.0.0.0/8\n model_console @in\n}", "gw.example.com:7443", "https://gw.example.com", "https://gw.example.com/console/"},
	} {
		t.Run(test.name, func(t *testing.T) {
			app := provision(t, test.file)
			got := app.endpoint()
			if got.Public != test.public || got.URL != test.url || got.Console != test.console {
				t.Errorf("public %q, URL %q, console %q; want %q, %q and %q", got.Public, got.URL, got.Console, test.public, test.url, test.console)
			}
		})
	}
}

// Links with a secret are not made for plain HTTP, unless that is meant.
func TestExposedConsole(t *testing.T) {
	for file, want := range map[string]bool{
		"http://gw.example.com {\n model_gateway\n model_console\n}":                                                           true,
		"{\n model_gateway {\n  public gw.example.com:7443\n }\n}\nhttp://gw.example.com {\n model_gateway\n model_console\n}": false,
		"gw.example.com {\n model_gateway\n model_console\n}":                                                                  false,
		"http://localhost:8080 {\n model_gateway\n model_console\n}":                                                           false,
		"http://127.0.0.1:8080 {\n model_gateway\n model_console\n}":                                                           false,
	} {
		if got := provision(t, file).endpoint(); got.Exposed != want || got.Console == "" {
			t.Errorf("%s: %+v", file, got)
		}
	}
}

// TestProvisionErrors checks what a wrong configuration is told.
func TestProvisionErrors(t *testing.T) {
	for _, test := range []struct{ options, want string }{
		{"listen tcp/:7443", "connectors dial one UDP port"},
		{"listen :7000-7010", "connectors dial one UDP port"},
		{"listen :x", `parsing listen ":x"`},
		{"public :7443", "must be the host:port that connectors dial"},
		{"public gw.example.com:0", "must be the host:port that connectors dial"},
		{"storage etcd /x", `storage "etcd" is unknown; expected bolt`},
	} {
		t.Run(test.options, func(t *testing.T) {
			_, err := tryProvision(t, "{\n model_gateway {\n  "+test.options+"\n }\n}\n:8080 {\n model_gateway\n}")
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

// provision provisions a Caddyfile, as caddy validate does, and returns its
// gateway app.
func provision(t *testing.T, file string) *App {
	t.Helper()
	app, err := tryProvision(t, file)
	if err != nil {
		t.Fatal(err)
	}
	return app
}

func tryProvision(t *testing.T, file string) (*App, error) {
	t.Helper()
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	adapted, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(file), nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg := new(caddy.Config)
	if err := caddy.StrictUnmarshalJSON(adapted, cfg); err != nil {
		t.Fatal(err)
	}
	ctx, err := caddy.ProvisionContext(cfg)
	if err != nil {
		return nil, err
	}
	app, err := ctx.App("http")
	if err != nil {
		return nil, err
	}
	if app, err = ctx.App("model_gateway"); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := app.(*App).Cleanup(); err != nil {
			t.Error(err)
		}
	})
	return app.(*App), nil
}
