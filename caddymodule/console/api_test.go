package console

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/docs"
)

// The descriptions need no session. They are the same for all gateways.
func TestDocuments(t *testing.T) {
	h := newHouse(t)
	for path, want := range map[string][]byte{"/console/api/openapi.json": docs.OpenAPI, "/console/connector.schema.json": docs.ConnectorSchema} {
		answer := h.browser().request(http.MethodGet, path, "")
		if answer.Code != http.StatusOK || answer.Header().Get("Content-Type") != "application/json" || answer.Body.String() != string(want) || !json.Valid(want) {
			t.Errorf("%s: %d %v", path, answer.Code, answer.Header())
		}
	}
}

// The page has all operations, with the address of this gateway.
func TestAPIPage(t *testing.T) {
	h := newHouse(t)
	if answer := h.browser().request(http.MethodGet, "/console/api/", ""); answer.Code != http.StatusSeeOther || !strings.Contains(answer.Header().Get("Location"), "next=%2Fconsole%2Fapi%2F") {
		t.Errorf("without a session: %d %v", answer.Code, answer.Header())
	}
	b := h.in(h.user(store.DefaultAccount, "anna"))
	answer := b.request(http.MethodGet, "/console/api/", "")
	page := answer.Body.String()
	if answer.Code != http.StatusOK {
		t.Fatalf("%d %s", answer.Code, page)
	}
	operations := 0
	for _, path := range readOpenAPI().Paths {
		for _, op := range path {
			operations++
			has(t, page, `id="`+op.OperationID+`"`)
		}
	}
	if operations < 30 {
		t.Errorf("%d operations", operations)
	}
	has(
		t, page, `<a href="/console/settings" aria-current="page">`, "A token with the right read or keys, or a session.",
		"Operators only, on Caddy&#39;s admin endpoint.", "A session of the console. Tokens are refused.",
		"curl --json &#39;{&#34;expires_at&#34;:&#34;2027-11-21T14:06:00Z&#34;,&#34;name&#34;:&#34;laptop&#34;,&#34;scope&#34;:&#34;qwen*&#34;}&#39; "+base+"/console/api/keys -H &#34;Authorization: Bearer $POSTERN_TOKEN&#34;",
		"curl -X DELETE "+base+"/console/api/sessions/ID -b &#34;__Host-postern=…&#34;", "curl --json &#39;{}&#39; http://localhost:2019/model_gateway/setup-link<",
		"<code>through[].state</code>",
	)
	if answer := b.request(http.MethodGet, "/console/api/nothing", ""); answer.Code != http.StatusNotFound || !strings.HasPrefix(answer.Body.String(), `{"error":`) {
		t.Errorf("an unknown path of the API: %d %s", answer.Code, answer.Body)
	}
}
