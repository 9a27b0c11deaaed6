package caddymodule

import (
	"net/http"
	"slices"
	"testing"
)

// Pages of the origins in `cors` may read every answer, errors included.
func TestCORS(t *testing.T) {
	const page, chat = "https://chat.example.com", "/v1/chat/completions"
	listed := newTestSite(t, "model_gateway {\n cors "+page+"\n cors app://obsidian.md\n}")
	for _, c := range []struct {
		name, method, path, origin, key string
		status                          int
		allowed                         string
	}{
		{"preflight", "OPTIONS", chat, page, "", 204, page},
		{"preflight for messages", "OPTIONS", "/v1/messages", "app://obsidian.md", "", 204, "app://obsidian.md"},
		{"preflight of another origin", "OPTIONS", chat, "https://evil.example.com", "", 405, ""},
		{"with a suffix", "OPTIONS", chat, page + ".evil.com", "", 405, ""},
		{"answer", "GET", "/v1/models", page, listed.key, 200, page},
		{"no key", "GET", "/v1/models", page, "", 401, page},
		{"wrong path", "POST", "/v1/nosuch", page, listed.key, 404, page},
		{"wrong body", "POST", "/v1/messages", page, listed.key, 400, page},
		{"preflight without /v1", "OPTIONS", "/chat/completions", page, "", 204, page},
		{"without /v1", "POST", "/chat/completions", page, listed.key, 404, page},
		{"without /v1, another origin", "POST", "/chat/completions", "https://evil.example.com", listed.key, 404, ""},
		{"another origin", "GET", "/v1/models", "https://evil.example.com", listed.key, 200, ""},
		{"no origin", "GET", "/v1/models", "", listed.key, 200, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			headers := []string{"Authorization: Bearer " + c.key}
			if c.origin != "" {
				headers = append(headers, "Origin: "+c.origin)
			}
			if c.method == http.MethodOptions {
				headers = []string{
					"Origin: " + c.origin, "Access-Control-Request-Method: POST",
					"Access-Control-Request-Headers: authorization,x-stainless-os",
				}
			}
			response, body := listed.do(t, c.method, c.path, "", headers...)
			h := response.Header
			if response.StatusCode != c.status || h.Get("Access-Control-Allow-Origin") != c.allowed {
				t.Errorf("%d %v %s", response.StatusCode, h, body)
			}
			if !slices.Contains(h.Values("Vary"), "Origin") {
				t.Error("caches mix up origins")
			}
			if exposed := h.Get("Access-Control-Expose-Headers"); (exposed == "*") != (c.allowed != "") {
				t.Errorf("exposed: %q", exposed)
			}
			if c.status == 204 && (h.Get("Access-Control-Allow-Headers") != "authorization,x-stainless-os" ||
				h.Get("Access-Control-Allow-Methods") != "GET, POST, DELETE" || h.Get("Access-Control-Max-Age") == "") {
				t.Errorf("preflight: %v", h)
			}
		})
	}
	everyone := newTestSite(t, "model_gateway {\n cors *\n}")
	response, _ := everyone.do(t, "GET", "/v1/models", "", "Origin: "+page)
	if response.StatusCode != 401 || response.Header.Get("Access-Control-Allow-Origin") != "*" ||
		response.Header.Get("Vary") != "" {
		t.Errorf("%d %v", response.StatusCode, response.Header)
	}
	if response, _ := everyone.do(t, "OPTIONS", chat, ""); response.StatusCode != 405 {
		t.Errorf("OPTIONS that is no preflight: %d", response.StatusCode)
	}
}
