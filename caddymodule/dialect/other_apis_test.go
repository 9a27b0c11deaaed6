package dialect

import (
	"net/http"
	"strings"
	"testing"
)

// The error for a path of an API that the gateway does not have names the API, with or without /v1.
func TestOtherAPIs(t *testing.T) {
	const base, audio, ollama = "https://gw.example.com/v1", "This gateway has no such audio API",
		"This gateway does not serve Ollama's own API"
	for _, c := range []struct{ path, without, with string }{
		{"/audio/diarization", audio, audio},
		{"/images/variations", "no such image API", "no such image API"},
		{"/realtime", "no realtime API", "no realtime API"},
		{"/files/file_1/content", "no file API", "no file API"},
		{"/batches", "no batch API", "no batch API"},
		{"/messages/batches", "no batch API", "no batch API"},
		{"/assistants", "no assistants API", "no assistants API"},
		{"/threads/t/runs", "no assistants API", "no assistants API"},
		{"/moderations", "no moderation API", "no moderation API"},
		{"/skills/skill_1", "no skills API", "no skills API"},
		{"/agents", "no agents API", "no agents API"},
		{"/sessions/s/events", "no sessions API", "no sessions API"},
		{"/responses/compact", "of type compaction_trigger.", "of type compaction_trigger."},
		{"/api/chat", ollama, ollama},
		{"/api/tags", ollama, ollama},
		{"/api/chat/completions", base, "Check the path"},
		{"/api/v1/models", base, "Check the path"},
		{"/audiobooks", base, "Check the path"},
		{"/chat/completions/x", base, "Check the path"},
	} {
		if e := NoVersion("POST", c.path, base); !strings.Contains(e.Message, c.without) {
			t.Errorf("%s: %s", c.path, e.Message)
		}
		_, e := Lookup("POST", "/v1"+c.path, nil)
		if e == nil || e.HTTPStatus(Chat) != http.StatusNotFound || !strings.Contains(e.Message, c.with) {
			t.Errorf("/v1%s: %v", c.path, e)
		}
		if _, logged := e.Logged(); strings.Contains(logged, c.path) {
			t.Errorf("/v1%s is logged: %s", c.path, logged)
		}
	}
	for _, path := range []string{"/rerank", "/audio/speech"} {
		if e := NoVersion("POST", path, base); !strings.Contains(e.Message, "set the client's base URL to "+base) {
			t.Errorf("%s: %s", path, e.Message)
		}
	}
	for path := range strings.SplitSeq(strings.ReplaceAll(served, " and ", ", "), ", ") {
		if _, e := Lookup(http.MethodHead, path, nil); e != nil && e.Kind != KindWrongMethod {
			t.Errorf("%s is not served: %s", path, e.Message)
		}
	}
}

// The error for a body of another operation has the path of that operation.
func TestContentOfAnotherOperation(t *testing.T) {
	for body, want := range map[string]string{
		`{"model":"m"}`: "Missing required parameter: messages.",
		`{"model":"m","prompt":"x"}`: "Missing required parameter: messages. For a request with `prompt`, " +
			"use POST /v1/completions.",
		`{"model":"m","stream":true,"input":[{}]}`: "Missing required parameter: messages. For a request with `input`, use " +
			"POST /v1/responses.",
	} {
		if _, err := scanRequest(Operation{Kind: ChatCompletions}, []byte(body), ""); err == nil || err.Message != want {
			t.Errorf("%s: %v", body, err)
		}
	}
	if _, err := scanRequest(Operation{Kind: Embeddings}, []byte(`{"model":"m","messages":[]}`), ""); err == nil ||
		!strings.Contains(err.Message, "use POST /v1/chat/completions.") {
		t.Error(err)
	}
}
