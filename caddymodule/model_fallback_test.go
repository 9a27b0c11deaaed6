package caddymodule

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/postern-dev/postern/caddymodule/store"
)

// A request that no handler of the site answers gets the base URL, in the dialect of its path.
func TestFallback(t *testing.T) {
	s := newTestSite(t, "model_gateway")
	for _, c := range []struct{ method, path, want string }{
		{"POST", "/chat/completions", `{"error":{"message":`},
		{"POST", "/completions", `{"error":{"message":`},
		{"GET", "/models/m", `{"error":{"message":`},
		{"POST", "/responses", `{"error":{"message":`},
		{"DELETE", "/responses/resp_1", `{"error":{"message":`},
		{"POST", "/messages", `{"type":"error","error":{"type":"not_found_error"`},
		{"POST", "/messages/count_tokens", `{"type":"error","error":{"type":"not_found_error"`},
		{"GET", "/", `{"error":{"message":`},
		{"PUT", "/elsewhere", `{"error":{"message":`},
		{"PROPFIND", "/metrics?x=y", `{"error":{"message":`},
		{"OPTIONS", "/api/chat", `{"error":{"message":`},
		{"GET", "/" + strings.Repeat("x", 4000), `{"error":{"message":`},
	} {
		response, body := s.do(t, c.method, c.path, `{}`)
		if response.StatusCode != http.StatusNotFound || !strings.HasPrefix(body, c.want) || len(body) > 1000 ||
			!strings.Contains(body, "set the client's base URL to "+s.url+"/v1.") ||
			response.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %.100s: %d %v %s", c.method, c.path, response.StatusCode, response.Header, body)
		}
	}
	response, body := s.do(t, "GET", "/elsewhere", "", "Accept: text/html,application/xhtml+xml,*/*;q=0.8")
	if response.StatusCode != http.StatusNotFound ||
		body != "Not found. This is a model gateway. Its API is at "+s.url+"/v1.\n" ||
		!strings.HasPrefix(response.Header.Get("Content-Type"), "text/plain") {
		t.Errorf("a browser got %d %v %s", response.StatusCode, response.Header, body)
	}
}

// Behind a proxy, the base URL has the scheme that the proxy reports, if it is trusted.
func TestFallbackBehindProxy(t *testing.T) {
	app := provision(t, "{\n servers {\n  trusted_proxies static 192.0.2.0/24\n }\n model_gateway {\n  listen "+
		freeUDP(t)+"\n }\n}\nhttp://:8080 {\n model_gateway\n}")
	httpApp, err := app.ctx.AppIfConfigured("http")
	must(t, err)
	for _, c := range []struct {
		address   string
		forwarded []string
		want      string
	}{
		{"192.0.2.1:1234", []string{"https"}, "https"},
		{"192.0.2.1:1234", []string{"http", "https"}, "https"},
		{"192.0.2.1:1234", []string{"https", "http"}, "http"},
		{"192.0.2.1:1234", []string{"gopher"}, "http"},
		{"192.0.2.1:1234", nil, "http"},
		{"198.51.100.1:1234", []string{"https"}, "http"},
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "http://gw.example.com/chat/completions", nil)
		r.RemoteAddr, r.Header["X-Forwarded-Proto"] = c.address, c.forwarded
		httpApp.(*caddyhttp.App).Servers["srv0"].ServeHTTP(w, r)
		if w.Code != http.StatusNotFound ||
			!strings.Contains(w.Body.String(), "base URL to "+c.want+"://gw.example.com/v1.") {
			t.Errorf("%s reports %q: %d %s", c.address, c.forwarded, w.Code, w.Body)
		}
	}
}

// / leads to the console of the same site, unless the site answers it.
func TestRoot(t *testing.T) {
	noRedirect := *http.DefaultClient
	noRedirect.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for _, c := range []struct {
		lines, method, path string
		status              int
	}{
		{"model_gateway\nmodel_console", "GET", "/", 302},
		{"model_gateway\nmodel_console", "HEAD", "/", 302},
		{"model_console", "GET", "/?from=here", 302},
		{"model_gateway\nmodel_console", "POST", "/", 404},
		{"model_gateway\nmodel_console", "GET", "//./", 302},
		{"model_gateway", "GET", "/", 404},
		{"model_gateway\nmodel_console\nrespond / mine 203", "GET", "/", 203},
		{"model_gateway\nmodel_console\nhandle / {\nerror 418\n}", "GET", "/", 418},
	} {
		s := newTestSite(t, c.lines)
		r, err := http.NewRequestWithContext(t.Context(), c.method, s.url+c.path, nil)
		must(t, err)
		response, err := noRedirect.Do(r)
		must(t, err)
		response.Body.Close()
		to := ""
		if c.status == 302 {
			to = "/console/"
		}
		if response.StatusCode != c.status || response.Header.Get("Location") != to {
			t.Errorf("%q: %s %s: status %d to %q, want %d", c.lines, c.method, c.path, response.StatusCode,
				response.Header.Get("Location"), c.status)
		}
	}
}

// Health checks need neither a key nor a connector. Other handlers have precedence.
func TestHealth(t *testing.T) {
	s := newTestSite(t, "model_gateway")
	for path, want := range map[string]string{"/healthz": "ok\n", "/readyz": "ready\n"} {
		for _, method := range []string{"GET", "HEAD"} {
			response, body := s.do(t, method, path, "")
			if response.StatusCode != 200 || body != want && method == "GET" ||
				response.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s %s: %d %v %q", method, path, response.StatusCode, response.Header, body)
			}
		}
	}
	if requests := s.app.store.Opened().Activity.Recent(store.DefaultAccount); len(requests) > 0 {
		t.Errorf("probes are recorded: %v", requests)
	}
	mine := newTestSite(t, "model_gateway\nrespond /healthz mine\nrespond /readyz 418")
	if _, body := mine.do(t, "GET", "/healthz", ""); body != "mine" {
		t.Errorf("/healthz of the site: %s", body)
	}
	if response, _ := mine.do(t, "GET", "/readyz", ""); response.StatusCode != 418 {
		t.Errorf("/readyz of the site: status %d", response.StatusCode)
	}
}

// A gateway that has not started is not ready.
func TestNotReady(t *testing.T) {
	app := provision(t, "{\n model_gateway {\n  listen "+freeUDP(t)+"\n }\n}\nhttp://:8080 {\n model_gateway\n}")
	httpApp, err := app.ctx.AppIfConfigured("http")
	must(t, err)
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 503} {
		w := httptest.NewRecorder()
		httpApp.(*caddyhttp.App).Servers["srv0"].ServeHTTP(w, httptest.NewRequest("GET", "http://localhost:8080"+path, nil))
		if w.Code != want {
			t.Errorf("%s: status %d, want %d", path, w.Code, want)
		}
	}
}

// Browsers ask with OPTIONS, without a key, whether a page may call the API.
func TestOptions(t *testing.T) {
	s := newTestSite(t, "model_gateway")
	for path, allow := range map[string]string{
		"/v1/chat/completions": "POST", "/v1/messages": "POST", "/v1/models": "GET, HEAD", "/v1/models/m": "GET, HEAD",
	} {
		response, body := s.do(t, "OPTIONS", path, "", "Origin: https://app.example.com",
			"Access-Control-Request-Method: POST")
		if response.StatusCode != http.StatusMethodNotAllowed || response.Header.Get("Allow") != allow ||
			response.Header.Get("Access-Control-Allow-Origin") != "" ||
			!strings.Contains(body, "Web pages from this origin cannot call the API.") {
			t.Errorf("%s: %d %v %s", path, response.StatusCode, response.Header, body)
		}
	}
	if response, body := s.do(t, "OPTIONS", "/v1/nosuch", ""); response.StatusCode != http.StatusNotFound {
		t.Errorf("%d %s", response.StatusCode, body)
	}
}

// A key is taken from the headers of OpenAI's, Anthropic's and Azure's SDKs, in
// this order.
func TestKeyHeaders(t *testing.T) {
	s := newTestSite(t, "model_gateway")
	for _, c := range []struct {
		headers []string
		status  int
	}{
		{[]string{"Authorization: Bearer " + s.key}, 200},
		{[]string{"X-Api-Key: " + s.key}, 200},
		{[]string{"Api-Key: " + s.key}, 200},
		{[]string{"X-Api-Key: wrong", "Api-Key: " + s.key}, 401},
		{[]string{"Authorization: Bearer wrong", "X-Api-Key: " + s.key}, 401},
		{[]string{"X-Goog-Api-Key: " + s.key}, 401},
	} {
		if response, body := s.do(t, "GET", "/v1/models", "", c.headers...); response.StatusCode != c.status {
			t.Errorf("%s: %d %s", c.headers, response.StatusCode, body)
		}
	}
}
