package caddymodule

import (
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
)

// TestEndpoint checks the addresses of the gateway that follow from its sites.
func TestEndpoint(t *testing.T) {
	const consoleElsewhere = "gw.example.com {\n model_gateway\n}\nadmin.example.com:8443 {\n model_console\n}"
	for _, test := range []struct{ name, file, public, url, console string }{
		{"one site", "gw.example.com {\n model_gateway\n}", "gw.example.com:7443", "https://gw.example.com", ""},
		{
			"beside another", "gw.example.com {\n model_gateway\n}\nwww.example.com {\n respond ok\n}", "gw.example.com:7443",
			"https://gw.example.com", "",
		},
		{
			"ports", "{\n model_gateway {\n  listen :9443\n }\n}\nhttps://gw.example.com:8443 {\n model_gateway\n}",
			"gw.example.com:9443", "https://gw.example.com:8443", "",
		},
		{
			"plain HTTP", "http://gw.example.com:8080 {\n model_gateway\n}", "gw.example.com:7443",
			"http://gw.example.com:8080", "",
		},
		{
			"behind a proxy", "{\n https_port 8443\n}\ngw.example.com {\n model_gateway\n model_console\n}",
			"gw.example.com:7443", "https://gw.example.com", "https://gw.example.com/console/",
		},
		{
			"plain behind a proxy", "{\n http_port 8080\n}\nhttp://gw.example.com {\n model_gateway\n}", "gw.example.com:7443",
			"http://gw.example.com", "",
		},
		{
			"a port that is not https_port", "{\n https_port 8443\n}\nhttps://gw.example.com:9443 {\n model_gateway\n}",
			"gw.example.com:7443", "https://gw.example.com:9443", "",
		},
		{
			"loopback names", "http://localhost:8080, http://127.0.0.1:8080, http://[::1]:8080 {\n model_gateway\n}",
			"localhost:7443", "http://localhost:8080", "",
		},
		{
			"HTTP and HTTPS", "http://gw.example.com:8080, https://gw.example.com:8443, https://gw.example.com:9443 {\n " +
				"model_gateway\n model_console\n}", "gw.example.com:7443", "https://gw.example.com:8443",
			"https://gw.example.com:8443/console/",
		},
		{"two sites", "a.example.com, b.example.com {\n model_gateway\n}", "", "", ""},
		{
			"two names, public one of them",
			"{\n model_gateway {\n  public b.example.com:7443\n }\n}\na.example.com, b.example.com {\n model_gateway\n " +
				"model_console\n}",
			"b.example.com:7443", "https://b.example.com", "https://b.example.com/console/",
		},
		{"no host", ":8080 {\n model_gateway\n}", "", "", ""},
		{
			"public", "{\n model_gateway {\n  public gw.example.net\n }\n}\n:8080 {\n model_gateway\n}",
			"gw.example.net:7443", "", "",
		},
		{
			"long form", "gw.example.com {\n route /v1/* {\n  model_auth\n  model_dialect\n  model_route\n }\n}",
			"gw.example.com:7443", "https://gw.example.com", "",
		},
		{
			"console", "gw.example.com {\n model_gateway\n model_console\n}", "gw.example.com:7443", "https://gw.example.com",
			"https://gw.example.com/console/",
		},
		{
			"console elsewhere", consoleElsewhere, "gw.example.com:7443", "https://gw.example.com",
			"https://admin.example.com:8443/console/",
		},
		{
			"console for some", "gw.example.com {\n model_gateway\n @in remote_ip 10.0.0.0/8\n model_console @in\n}",
			"gw.example.com:7443", "https://gw.example.com", "https://gw.example.com/console/",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			app := provision(t, test.file)
			got := app.addresses.endpoint()
			if got.Public != test.public || got.URL != test.url || got.Console != test.console {
				t.Errorf("public %q, URL %q, console %q; want %q, %q and %q", got.Public, got.URL, got.Console, test.public,
					test.url, test.console)
			}
		})
	}
}

// Links with a secret are not created for plain HTTP, unless `public` names the host.
func TestExposedConsole(t *testing.T) {
	const public = "{\n model_gateway {\n  public gw.example.com:7443\n }\n}\n"
	const handlers = " {\n model_gateway\n model_console\n}"
	for file, want := range map[string]bool{
		"http://gw.example.com" + handlers:          true,
		public + "http://gw.example.com" + handlers: false,
		"gw.example.com" + handlers:                 false,
		"http://localhost:8080" + handlers:          false,
		"http://127.0.0.1:8080" + handlers:          false,
	} {
		if got := provision(t, file).addresses.endpoint(); got.Exposed != want || got.Console == "" {
			t.Errorf("%s: %+v", file, got)
		}
	}
}

// A script without its hash, or a pairing without the pin, is only for gateways whose API
// and console can both be verified.
func TestVerifiedSites(t *testing.T) {
	const api = "gw.example.com {\n model_gateway\n}\n"
	for file, want := range map[string]bool{
		"gw.example.com {\n model_gateway\n model_console\n}": true,
		api: true,
		api + "admin.example.com {\n model_console\n}":                                       true,
		api + "http://admin.example.com {\n model_console\n}":                                false,
		api + "admin.internal {\n tls internal\n model_console\n}":                           false,
		"http://gw.example.com {\n model_gateway\n}\nadmin.example.com {\n model_console\n}": false,
		"http://localhost:8080 {\n model_gateway\n model_console\n}":                         true,
	} {
		if got := provision(t, file).addresses.endpoint(); got.Verified != want {
			t.Errorf("%s: %+v", file, got)
		}
	}
}

// Sites that do not work together are valid, but get a warning that names the fix.
func TestWarningsOfSites(t *testing.T) {
	const noAPI, noAddress = "the console is without the API", "connectors cannot be paired"
	for _, c := range []struct{ name, public, sites, want string }{
		{"console alone", "", "gw.example.com {\n model_console\n}", noAPI},
		{"console alone, beside others", "", "gw.example.com {\n model_console\n}\nwww.example.com {\n respond ok\n}", noAPI},
		{"two sites", "", "a.example.com {\n model_gateway\n}\nb.example.com {\n model_gateway\n}", noAddress},
		{
			"two sites, two servers", "", "a.example.com {\n model_gateway\n}\nb.example.com:8443 {\n model_gateway\n}",
			noAddress,
		},
		{"two names", "", "a.example.com, b.example.com {\n model_gateway\n}", noAddress},
		{"no name", "", ":8080 {\n model_gateway\n}", noAddress},
		{
			"two sites, public", "public a.example.com:7443",
			"a.example.com {\n model_gateway\n}\nb.example.com {\n model_gateway\n}", "",
		},
		{"one site", "", "gw.example.com {\n model_gateway\n model_console\n}\nwww.example.com {\n respond ok\n}", ""},
		{"console elsewhere", "", "gw.example.com {\n model_gateway\n}\nadmin.example.com {\n model_console\n}", ""},
		{"HTTP and HTTPS", "", "http://gw.example.com, https://gw.example.com {\n model_gateway\n}", ""},
		{"loopback names", "", "http://localhost:8080, http://127.0.0.1:8080 {\n model_gateway\n}", ""},
		{"long form, invoked", "", "&(gw) {\n route {\n model_auth\n model_dialect\n model_route\n}\n}\ngw.example.com {\n " +
			"invoke gw\n model_console\n}", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			accessLogs.lines, accessLogs.wrote = nil, nil
			provision(t, "{\n log {\n  output memory\n }\n model_gateway {\n "+c.public+"\n }\n}\n"+c.sites)
			accessLogs.mu.Lock()
			defer accessLogs.mu.Unlock()
			warned := ""
			for _, line := range accessLogs.lines {
				if entry := entryOf(t, line); entry["level"] == "warn" && entry["logger"] == "model_gateway" {
					warned += entry["msg"].(string)
				}
			}
			if (warned == "") != (c.want == "") || !strings.Contains(warned, c.want) ||
				warned != "" && !strings.Contains(warned, "`model_gateway`") {
				t.Errorf("warned of %q, want %q", warned, c.want)
			}
		})
	}
}

// A request must pass model_auth, model_dialect and model_route in this order,
// wherever they are.
func TestHandlerOrder(t *testing.T) {
	for name, test := range map[string]struct{ lines, want string }{
		"right":            {"route {\n model_auth\n model_dialect\n model_route\n}", ""},
		"apart":            {"route {\n model_auth\n route /v1/* {\n model_dialect\n route {\n model_route\n}\n}\n}", ""},
		"others between":   {"route {\n model_auth\n vars x y\n model_dialect\n vars y z\n model_route\n}", ""},
		"auth in a handle": {"route {\n handle /v1/* {\n route {\n model_auth\n}\n}\n model_dialect\n model_route\n}", ""},
		"invoked":          {"invoke gw", ""},
		"route first": {
			"route {\n model_auth\n model_route\n model_dialect\n}",
			"model_route has no model_dialect before it",
		},
		"dialect first": {
			"route {\n model_dialect\n model_auth\n model_route\n}",
			"model_dialect has no model_auth before it",
		},
		"backwards": {
			"route {\n model_route\n model_dialect\n model_auth\n}",
			"model_route has no model_dialect before it",
		},
		"no auth": {"route {\n model_dialect\n model_route\n}", "the order model_auth, model_dialect, model_route"},
		"in other handles": {
			"handle /a {\n route {\n model_auth\n}\n}\nhandle /b {\n route {\n model_dialect\n}\n}",
			"model_dialect has no model_auth before it",
		},
		"invoked too early": {"route {\n invoke rest\n model_auth\n}", "model_dialect has no model_auth before it"},
	} {
		const named = "&(gw) {\n route {\n model_auth\n model_dialect\n model_route\n}\n}\n&(rest) {\n route {\n " +
			"model_dialect\n model_route\n}\n}\n"
		if name != "invoked too early" && name != "invoked" {
			test.lines = "a.example.com {\n model_gateway\n}\nb.example.com {\n" + test.lines + "\n}"
		} else {
			test.lines = named + "b.example.com {\n" + test.lines + "\n}"
		}
		_, err := tryProvision(t, test.lines)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// TestProvisionErrors checks the errors of wrong configurations.
func TestProvisionErrors(t *testing.T) {
	for _, test := range []struct{ options, want string }{
		{"listen tcp/:7443", "connectors dial one UDP port"},
		{"listen :7000-7010", "connectors dial one UDP port"},
		{"listen :x", `parsing listen ":x"`},
		{"listen 7443", `parsing listen "7443": for this port, write :7443`},
		{"public 7443", `parsing public "7443": it must be the host:port`},
		{"public :7443", "must be the host:port that connectors dial"},
		{"public gw.example.com:0", "must be the host:port that connectors dial"},
		{"storage sqlite /x", `storage "sqlite" is unknown; expected bolt or etcd`},
		{"storage /srv/gateway.db", `storage "/srv/gateway.db" is unknown; expected bolt or etcd`},
		{"storage etcd", "the store in etcd needs the URL of at least one member"},
		{"storage etcd {\n endpoints etcd:2379\n }", "URL 1 of etcd is invalid"},
		{"storage etcd {\n endpoints http://etcd:2379\n compact on\n }", `parsing compact "on": it must be off`},
		{"storage etcd {\n endpoints http://etcd:2379\n tls /missing.pem\n }", "reading the certificate authority of etcd"},
		{"edge {\n name a\n }", "`edge` needs a store that several gateways share"},
		{"storage etcd {\n endpoints http://e\n }\n edge {\n name \"a b\"\n }", `parsing edge name "a b"`},
		{"storage etcd {\n endpoints http://e\n }\n edge {\n advertise :1\n }", `parsing edge advertise ":1"`},
		{
			"storage etcd {\n endpoints http://e\n }\n edge {\n on_store_loss 31m\n }",
			"it must be a duration from 10s to 30m, or deny",
		},
		{"storage etcd {\n endpoints http://e\n }\n edge {\n on_store_loss 9s\n }", `parsing edge on_store_loss "9s"`},
	} {
		t.Run(test.options, func(t *testing.T) {
			_, err := tryProvision(t, "{\n model_gateway {\n  "+test.options+"\n }\n}\n:8080 {\n model_gateway\n}")
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

// The storage and the edge without options have defaults.
func TestStorageDefaults(t *testing.T) {
	app := provision(t, "{\n model_gateway {\n  storage bolt\n }\n}\n:8080 {\n model_gateway\n}")
	if config, err := app.Storage.config(app.Edge); err != nil ||
		config.Path != filepath.Join(caddy.AppDataDir(), "model_gateway", "gateway.db") {
		t.Errorf("storage bolt: %q, %v", config.Path, err)
	}
	for option, want := range map[string]time.Duration{
		"": 2 * time.Minute, "deny": 10 * time.Second,
		"10s": 10 * time.Second, "30m": 30 * time.Minute,
	} {
		if e, err := (&Edge{OnStoreLoss: option}).record(); err != nil || e.OnStoreLoss != want {
			t.Errorf("on_store_loss %q: %v, %v", option, e.OnStoreLoss, err)
		}
	}
}

// TestReloadOfEdge: a reload with options that only a start applies is refused.
func TestReloadOfEdge(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	reload := func(e Etcd, edge *Edge) error {
		t.Helper()
		config, err := (&Storage{Kind: storageEtcd, Etcd: e}).config(edge)
		must(t, err)
		_, release, err := acquireStore(config, slog.New(slog.DiscardHandler))
		if err == nil {
			t.Cleanup(func() { _ = release() })
		}
		return err
	}
	etcd := Etcd{Endpoints: []string{"http://127.0.0.1:1"}}
	for _, edge := range []*Edge{nil, {OnStoreLoss: "2m"}} { // the start, and a reload that changes nothing
		must(t, reload(etcd, edge))
	}
	for _, edge := range []*Edge{{Name: "a"}, {Advertise: "a:1"}, {OnStoreLoss: "deny"}} {
		if err := reload(etcd, edge); !errors.Is(err, errOtherOptions) {
			t.Errorf("%+v: %v", edge, err)
		}
	}
	for _, other := range []Etcd{
		{Endpoints: []string{"http://127.0.0.1:2"}},
		{Endpoints: etcd.Endpoints, Prefix: "other"},
		{Endpoints: etcd.Endpoints, User: "postern"},
		{Endpoints: etcd.Endpoints, Compact: "off"},
	} {
		if err := reload(other, nil); !errors.Is(err, errOtherOptions) {
			t.Errorf("%+v: %v", other, err)
		}
	}
}

// provision provisions a Caddyfile, as caddy validate does, and returns its
// gateway app.
func provision(t *testing.T, file string) *App {
	t.Helper()
	app, err := tryProvision(t, file)
	must(t, err)
	return app
}

func tryProvision(t *testing.T, file string) (*App, error) {
	t.Helper()
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	adapted, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(file), nil)
	must(t, err)
	cfg := new(caddy.Config)
	must(t, caddy.StrictUnmarshalJSON(adapted, cfg))
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
