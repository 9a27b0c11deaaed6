package caddymodule

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/postern-dev/postern/caddymodule/store"
)

// TestForgedAddress: behind a proxy that appends to X-Forwarded-For, a client cannot choose
// an address that a key allows if the proxies are strict. Otherwise, the gateway warns.
func TestForgedAddress(t *testing.T) {
	for _, c := range []struct {
		strict, forwarded string
		status            int
	}{
		{"trusted_proxies_strict", "10.1.2.3, 203.0.113.9", http.StatusForbidden},
		{"trusted_proxies_strict", "203.0.113.9, 10.1.2.3", http.StatusOK},
		{"trusted_proxies_strict", "10.1.2.3, 203.0.113.9, 192.0.2.8", http.StatusForbidden}, // two proxies
		{"", "10.1.2.3, 203.0.113.9", http.StatusOK},                                         // the case of the warning
	} {
		app := provision(t, fmt.Sprintf("{\n servers {\n  trusted_proxies static 192.0.2.0/24\n  %s\n }\n model_gateway "+
			"{\n  listen %s\n  storage bolt %s\n }\n}\nhttp://:8080 {\n model_gateway\n}",
			c.strict, freeUDP(t), filepath.Join(t.TempDir(), "gateway.db")))
		app.store.Messages = io.Discard
		var log bytes.Buffer
		app.logger = slog.New(slog.NewTextHandler(&log, nil))
		start(t, app)
		_, secret, err := app.store.Opened().Store.CreateKey(t.Context(), "default", store.KeyFields{
			Name: "test", Scope: "*", AllowedIPs: []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24")},
		})
		must(t, err)
		httpApp, err := app.ctx.AppIfConfigured("http")
		must(t, err)
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "http://gw.example.com/v1/models", nil)
		r.RemoteAddr = "192.0.2.7:1234"
		r.Header.Set("X-Forwarded-For", c.forwarded)
		r.Header.Set("Authorization", "Bearer "+secret)
		httpApp.(*caddyhttp.App).Servers["srv0"].ServeHTTP(w, r)
		if w.Code != c.status {
			t.Errorf("%q with %s: status %d, want %d: %s", c.strict, c.forwarded, w.Code, c.status, w.Body)
		}
		if warned := strings.Contains(log.String(),
			"trusted_proxies without trusted_proxies_strict"); warned == (c.strict != "") {
			t.Errorf("%q: the log at the start is %s", c.strict, log.String())
		}
	}
}

func TestWarnings(t *testing.T) {
	const sites = "http://:8080 {\n model_gateway\n}\nhttp://console.example.com:8081 {\n " +
		"model_console\n}\nhttp://:8082 {\n respond ok\n}"
	for _, c := range []struct {
		servers string
		want    int
	}{
		{"", 0},
		{"servers {\n trusted_proxies static private_ranges\n}", 2},
		{"servers :8081 {\n trusted_proxies static private_ranges\n}", 1},
		{"servers :8082 {\n trusted_proxies static private_ranges\n}", 0},
		{"servers {\n trusted_proxies_unix\n}", 2},
		{"servers {\n trusted_proxies static private_ranges\n trusted_proxies_strict\n}", 0},
	} {
		got := provision(t, "{\n"+c.servers+"\n}\n"+sites).addresses.endpoint().Warnings
		if len(got) != c.want {
			t.Errorf("%q: %q, want %d", c.servers, got, c.want)
		}
	}
}

// URLs do not have the port of https_port. The gateway warns of that, unless the server is behind a proxy.
func TestWarningOfHTTPSPort(t *testing.T) {
	const site = "gw.example.com {\n model_gateway\n}"
	for _, c := range []struct {
		options, site string
		warns         bool
	}{
		{"https_port 8443", site, true},
		{"", site, false},
		{"", "https://gw.example.com:8443 {\n model_gateway\n}", false},
		{"https_port 8443\n servers {\n  trusted_proxies static 192.0.2.1\n  trusted_proxies_strict\n }", site, false},
		{"https_port 8443\n servers {\n  listener_wrappers {\n   http_redirect\n   tls\n  }\n }", site, false},
	} {
		got := provision(t, "{\n "+c.options+"\n}\n"+c.site).addresses.endpoint().Warnings
		if warns := strings.Contains(strings.Join(got, ""), "like https://gw.example.com:8443"); warns != c.warns {
			t.Errorf("%q, %q: %q", c.options, c.site, got)
		}
	}
}

// Another version of Caddy may have a field of another type, or none.
func TestIsSet(t *testing.T) {
	type options struct {
		None, Some any
		Off, On    bool
		Empty, Set struct{ Of string }
		List       []string
	}
	o := options{Some: 1, On: true, List: []string{}}
	o.Set.Of = "x"
	for field, want := range map[string]bool{
		"None": false, "Some": true, "Off": false, "On": true, "Empty": false, "Set": true, "List": true, "Gone": false,
	} {
		if isSet(&o, field) != want {
			t.Errorf("%s is set: %v", field, !want)
		}
	}
}
