package serve

import (
	"net/http/httptest"
	"testing"

	"github.com/postern-dev/postern/caddymodule/dialect"
)

// The first token is the first of the model's output, not the role before it.
func TestFirstToken(t *testing.T) {
	for event, want := range map[string]bool{
		`{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`:                 false,
		`{"choices":[{"index":0,"delta":{"role":"assistant","content":null}}]}`:               false,
		`{"choices":[{"index":0,"delta":{"role":"assistant","function_call":null}}]}`:         false,
		`{"choices":[{"index":0,"delta":{"role":"assistant","content":"","tool_calls":[]}}]}`: false,
		`{"choices": [{"index": 0, "delta": {"content": "H"}}]}`:                              true,
		`{"choices":[{"delta":{"content":"","reasoning_content":"Hm"}}]}`:                     true,
		`{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}`:                                true,
		`{"choices":[{"index":0,"text":"H"}]}`:                                                true,
	} {
		a := newAnswer(httptest.NewRecorder())
		a.open(dialect.NewChatStream(dialect.ChatStreamOptions{}), 0)
		if _, derr := a.feed([]byte("data: " + event + "\n\n")); derr != nil {
			t.Fatal(derr)
		}
		if e := a.end(dialect.Chat); e.First.IsZero() == want {
			t.Errorf("%s: first token at %v", event, e.First)
		}
	}
}
