package dialect

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestLookup(t *testing.T) {
	anthropic := http.Header{"Anthropic-Version": {"2026-10-21"}}
	for _, tt := range []struct {
		method, path string
		h            http.Header
		want         Operation
		status       int // of the error, 0 for none
		allow        string
	}{
		{"POST", "/v1/chat/completions", anthropic, Operation{Kind: ChatCompletions, Dialect: Chat}, 0, ""},
		{"HEAD", "/v1/models", nil, Operation{Kind: ListModels, Dialect: Chat}, 0, ""},
		{"GET", "/v1/models", anthropic, Operation{Kind: ListModels, Dialect: Messages}, 0, ""},
		{"GET", "/v1/models/llama3.2:3b", nil, Operation{Kind: GetModel, Dialect: Chat, ID: "llama3.2:3b"}, 0, ""},
		{"GET", "/v1/models/org%2Fname%3A1", nil, Operation{Kind: GetModel, Dialect: Chat, ID: "org/name:1"}, 0, ""},
		{"GET", "/v1/models/org/name", anthropic, Operation{Kind: GetModel, Dialect: Messages, ID: "org/name"}, 0, ""},
		{"GET", "/v1/models/a%2541", nil, Operation{Kind: GetModel, Dialect: Chat, ID: "a%41"}, 0, ""},
		{"GET", "/v1/models/a+b", nil, Operation{Kind: GetModel, Dialect: Chat, ID: "a+b"}, 0, ""},

		{"GET", "/v1/models/%zz", nil, Operation{Dialect: Chat}, 404, ""},
		{"GET", "/v1/models/", nil, Operation{Dialect: Chat}, 404, ""},
		{"OPTIONS", "/v1/embeddings", nil, Operation{Dialect: Chat}, 405, "POST"},
		{"POST", "/v1/models", nil, Operation{Dialect: Chat}, 405, "GET, HEAD"},
		{"DELETE", "/v1/models/x", anthropic, Operation{Dialect: Messages}, 405, "GET, HEAD"},
		{"POST", "/v1/audio/speech", nil, Operation{Kind: Speech, Dialect: Chat}, 0, ""},
		{"GET", "/v1/audio/speech", nil, Operation{Dialect: Chat}, 405, "POST"},
		{"GET", "/", nil, Operation{Dialect: Chat}, 404, ""},
		{"POST", "/v1", nil, Operation{Dialect: Chat}, 405, "GET, HEAD"},
		{"GET", "/v1/modelsx", anthropic, Operation{Dialect: Chat}, 404, ""},
		{"POST", "/v1/messagesx", nil, Operation{Dialect: Chat}, 404, ""},
		{"GET", "/v1/responses/resp_1", nil, Operation{Kind: GetResponse, Dialect: Responses, ID: "resp_1"}, 0, ""},
		{"POST", "/v1/responses/resp_1", nil, Operation{Dialect: Responses}, 405, "GET, HEAD, DELETE"},
		{"GET", "/v1/responses/resp_1/events", nil, Operation{Dialect: Responses}, 404, ""},
		{"GET", "/v1/responses", http.Header{"Upgrade": {"websocket"}}, Operation{Dialect: Responses}, 426, ""},
	} {
		op, err := Lookup(tt.method, tt.path, tt.h)
		status, allow := 0, ""
		if err != nil {
			status, allow = err.HTTPStatus(op.Dialect), err.Allow
		}
		if op != tt.want || status != tt.status || allow != tt.allow {
			t.Errorf("%s %s: got %+v, %d %q", tt.method, tt.path, op, status, allow)
		}
	}
}

// Each operation has a name of its own.
func TestOperationNames(t *testing.T) {
	seen := map[string]bool{}
	for kind := range routes {
		name := Operation{Kind: OperationKind(kind)}.Name()
		if (name == "") != (kind == 0) || seen[name] {
			t.Errorf("operation %d has the name %q", kind, name)
		}
		seen[name] = true
	}
}

// GET /v1 lists what Lookup finds, each with a line for people.
func TestPathsList(t *testing.T) {
	var list struct {
		Data []struct{ Method, Path, Description string }
		Page *string
	}
	if err := json.Unmarshal(PathsList("https://gw.example.com/console/connect"), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Data) != len(routes)-2 || *list.Page != "https://gw.example.com/console/connect" {
		t.Errorf("%+v", list)
	}
	for _, p := range list.Data {
		op, err := Lookup(p.Method, p.Path, nil)
		if err != nil || routes[op.Kind].about != p.Description || p.Description == "" {
			t.Errorf("%+v: %+v, %v", p, op, err)
		}
	}
	if err := json.Unmarshal(PathsList(""), &list); err != nil || list.Page != nil {
		t.Errorf("without a page: %v, %v", list.Page, err)
	}
}

// The error for an unknown path, or one without /v1, says for each dialect whether the base URL has /v1.
func TestBaseURLOfErrors(t *testing.T) {
	const openAI, anthropic = "base URL ends in /v1.", "(ANTHROPIC_BASE_URL): Anthropic's clients add it."
	for path, want := range map[string]string{
		"/v1/nosuch": openAI, "/v1/v1/chat/completions": openAI, "/v1/responses/a/b": openAI,
		"/v1/messages/nosuch": anthropic,
	} {
		if _, e := Lookup("POST", path, nil); e == nil || !strings.HasSuffix(e.Message, want) {
			t.Errorf("%s: %v", path, e)
		}
	}
	for path, want := range map[string]string{
		"/console/v1/messages": "https://gw.example.com.", "/messages": "https://gw.example.com/v1.",
		"/console/v1/chat/completions": "https://gw.example.com/v1.",
	} {
		if e := NoVersion("POST", path, "https://gw.example.com/v1"); !strings.HasSuffix(e.Message, "base URL to "+want) {
			t.Errorf("%s: %v", path, e)
		}
	}
}

// Each dialect has a format, and one that is translated has all of it.
func TestFormats(t *testing.T) {
	for _, f := range formats {
		translated := f.encoder != nil
		if f.dialect.format().dialect != f.dialect || translated == (f.dialect == Chat) {
			t.Errorf("%q", f.dialect)
		}
		if f.content == "" || f.appendError == nil || f.rate == nil || f.tokens == nil {
			t.Errorf("%s lacks a part: %+v", f.dialect, f)
		}
		if translated && (f.root == "" || f.element == nil || f.missing == nil || f.wrongType == nil || f.fields == nil ||
			f.callID == nil || f.tokenCount == "") {
			t.Errorf("%s lacks a part of a translated dialect: %+v", f.dialect, f)
		}
	}
}

// The manual names each path.
func TestPathsInManual(t *testing.T) {
	manual, err := os.ReadFile("../../docs/dialects.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range routes[1:CancelResponse] {
		path := strings.Replace(r.path, "*", "{id}", 1)
		if !regexp.MustCompile("[ `]" + regexp.QuoteMeta(path) + "[`?]").Match(manual) {
			t.Errorf("docs/dialects.md does not name %s", path)
		}
	}
}
