package oidc

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/postern-dev/postern/tests/browser"
	"github.com/postern-dev/postern/tests/harness"
)

// A proxy ends TLS, and has a name at which the gateway does not listen. Chromium signs in, confirms, links and signs
// out.
func TestIssuerBehindProxy(t *testing.T) {
	t.Parallel()
	chromium := browser.Start(t)
	var mu sync.Mutex
	set := map[string]string{} // cookies by name
	behind := harness.FreeAddr(t)
	proxy := httptest.NewTLSServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: behind})
			r.Out.Host = r.In.Host
			r.SetXForwarded()
			r.Out.Header.Set("X-Forwarded-For", "192.0.2.7")
		},
		ModifyResponse: func(answer *http.Response) error {
			mu.Lock()
			defer mu.Unlock()
			for _, line := range answer.Header.Values("Set-Cookie") {
				if name, rest, _ := strings.Cut(line, "="); !strings.Contains(rest, "Max-Age=0") {
					set[name] = rest
				}
			}
			return nil
		},
		FlushInterval: -1,
	})
	t.Cleanup(func() {
		proxy.CloseClientConnections()
		proxy.Close()
	})
	at := strings.Replace(proxy.URL, "127.0.0.1", "gw.localhost", 1)
	p := newProvider(t)
	p.start(at + callback)
	o := p.options("redirect_url " + at)
	_, port, err := net.SplitHostPort(behind)
	must(t, err)
	o.Sites = "http://gw.localhost:" + port + " {\n bind 127.0.0.1\n model_gateway\n" + o.Lines + "\n}"
	o.Lines = ""
	o.Global = "servers " + behind + " {\n trusted_proxies static 127.0.0.1/32\n trusted_proxies_strict\n}"
	r := &rig{Gateway: harness.Start(t, o), provider: p}
	r.Hide(clientSecret, password)
	r.Process.WaitLog(t, at+callback, harness.Patience) // the redirect address
	useIssuer(t, chromium, at)
	r.Process.WaitLog(t, `"remote":"192.0.2.7"`, harness.Patience)
	mu.Lock()
	defer mu.Unlock()
	flows := 0
	for name, rest := range set {
		flow := strings.HasPrefix(name, "__Host-postern-oidc-")
		if flow {
			flows++
		}
		if !flow && name != "postern" && name != "postern-notice" && name != "postern-secret" ||
			!strings.Contains(rest, "; HttpOnly; Secure; SameSite=Lax") || strings.Contains(rest, "Domain") {
			t.Errorf("the cookie %s is set with %s", name, rest[strings.IndexByte(rest, ';'):])
		}
	}
	if set["postern"] == "" || flows != 4 {
		t.Errorf("%d flows; the cookies are %v", flows, set)
	}
}
