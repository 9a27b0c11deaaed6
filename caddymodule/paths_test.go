package caddymodule

import (
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// longForm is the long form of the directive model_gateway, with a handler for one path in between.
const longForm = `
	@api path /v1 /v1/*
	route @api {
		model_auth
		@completions path /v1/completions
		respond @completions "limited" 418
		model_dialect
		model_route
	}
	route {
		model_fallback
	}`

// A base URL with /v1 for a client that adds it, or a slash at the end, leads to the same
// operations, in the short form and in the long one.
func TestSurplusInPaths(t *testing.T) {
	for name, lines := range map[string]string{"short": "model_gateway", "long": longForm} {
		t.Run(name, func(t *testing.T) {
			s := newTestSite(t, lines)
			deployModel(t, s, "m")
			for _, c := range []struct {
				method, path string
				status       int
				want         string
			}{
				{"GET", "/v1/v1/models", 200, `{"object":"list"`},
				{"GET", "/v1/models/", 200, `{"object":"list"`},
				{"GET", "/v1/v1/models/", 200, `{"object":"list"`},
				{"GET", "/v1/v1/models/m", 200, `"id":"m"`},
				{"GET", "/v1/v1/models/%6d/", 200, `"id":"m"`},
				{"GET", "/v1/models/m/", 200, `"id":"m"`},
				{"GET", "/v1/key/", 200, `{"data":`},
				{"POST", "/v1/v1/messages", 400, `{"type":"error"`},
				{"POST", "/v1/v1/messages?beta=true", 400, `{"type":"error"`},
				{"POST", "/v1/v1/messages/count_tokens", 400, `{"type":"error"`},
				{"POST", "/v1/v1/responses/", 400, `"code":`},
				{"POST", "/v1/chat/completions/", 400, `"code":`},
				{"OPTIONS", "/v1/v1/messages", 405, "/v1/messages supports POST"},
				{"GET", "/v1/v1/v1/models", 404, "unknown_url"},
				{"GET", "/v1/models//", 404, "unknown_url"},
				{"GET", "/v1/v1", 200, `"path":"/v1/key"`},
				{"GET", "/v1/", 200, `"page":null}`},
				{"POST", "/v1/v1/messages/nosuch", 404, "ANTHROPIC_BASE_URL"},
				{"GET", "/v1/v1x/models", 404, "unknown_url"},
				{"GET", "/v1/%76%31/models", 404, "unknown_url"},
			} {
				response, body := s.do(t, c.method, c.path, `{}`, "Authorization: Bearer "+s.key)
				if response.StatusCode != c.status || !strings.Contains(body, c.want) {
					t.Errorf("%s %s: %d %s", c.method, c.path, response.StatusCode, body)
				}
			}
			if response, body := s.do(t, "POST", "/v1/v1/messages/", `{}`); response.StatusCode != 401 ||
				!strings.Contains(body, "authentication_error") {
				t.Errorf("without a key: %d %s", response.StatusCode, body)
			}
			wait.Until(t, "the request without a key is in the activity", func() bool {
				return slices.ContainsFunc(s.app.store.Opened().Activity.Recent(store.DefaultAccount),
					func(r activity.Request) bool { return r.Dialect == "messages" && r.Status == 401 })
			})
		})
	}
}

// No other form of a path bypasses a handler for that path, such as a rate limit.
func TestHandlersBetweenSeeOnePath(t *testing.T) {
	s := newTestSite(t, longForm)
	for _, path := range []string{"/v1/completions", "/v1/v1/completions", "/v1/completions/", "/v1/v1/completions/"} {
		if response, body := s.do(t, "POST", path, `{}`, "Authorization: Bearer "+s.key); response.StatusCode != 418 ||
			body != "limited" {
			t.Errorf("%s: %d %s", path, response.StatusCode, body)
		}
	}
}

// deployModel registers a deployment, whose connector is never online.
func deployModel(t *testing.T, s *testSite, name string) {
	t.Helper()
	st := s.app.store.Opened().Store
	c, _, err := st.CreateConnector(t.Context(), store.DefaultAccount, "box "+name)
	must(t, err)
	d := store.Deployment{Account: store.DefaultAccount, Name: name, Connectors: []string{c.ID}, Model: "server-" + name}
	must(t, errOf(st.SetDeployment(t.Context(), d)))
}
