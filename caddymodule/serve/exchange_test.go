package serve

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/store"
)

// The cost of a request is recorded, and nothing of its content.
func TestRecord(t *testing.T) {
	g := newGateway(t, 64<<20)
	key, secret := g.newKey(t, store.DefaultAccount, "*")
	begun := time.Now().Add(-3 * time.Second)
	ex := &Exchange{
		backend: g.backend, RequestID: "req_1", Account: store.DefaultAccount, Key: key, Start: begun, Streamed: true, Deployment: "qwen3:8b",
		Operation: dialect.Operation{Kind: dialect.CreateMessage, Dialect: dialect.Messages}, Model: "a prompt, by mistake",
		Usage: dialect.Usage{PromptTokens: 120, CompletionTokens: 30},
	}
	ex.record(200, begun.Add(time.Second))
	unknown := &Exchange{backend: g.backend, RequestID: "req_2", Account: store.DefaultAccount, Key: key, Start: time.Now(), Model: "a prompt, by mistake"}
	unknown.record(404, time.Time{})

	recent := g.backend.Activity.Recent(store.DefaultAccount)
	if len(recent) != 2 {
		t.Fatalf("recorded %+v", recent)
	}
	got := recent[1]
	if got.DurationMillis < 3000 || got.DurationMillis > 60_000 || got.FirstTokenMillis != 1000 {
		t.Errorf("duration %v, first token %v", got.DurationMillis, got.FirstTokenMillis)
	}
	if got.ID != "req_1" || got.KeyID != key.ID() || got.KeyName != "test *" || got.Deployment != "qwen3:8b" || got.Dialect != "messages" ||
		got.Operation != "messages" || got.Status != 200 || !got.Streamed || got.InputTokens != 120 || got.OutputTokens != 30 || !got.Time.Equal(begun.Truncate(time.Millisecond)) {
		t.Errorf("recorded %+v", got)
	}
	if recent[0].Status != 404 || recent[0].FirstTokenMillis != 0 {
		t.Errorf("recorded %+v", recent[0])
	}
	text, err := json.Marshal(recent)
	if err != nil || strings.Contains(string(text), "prompt, by") || strings.Contains(string(text), secret) {
		t.Errorf("%s, %v", text, err)
	}
}

// Recording is on the way of each request: it may not cost much.
func TestRecordAllocates(t *testing.T) {
	g := newGateway(t, 64<<20)
	key := g.key
	g.backend.Store.Touch(key)
	ex := &Exchange{backend: g.backend, RequestID: "req_1", Account: store.DefaultAccount, Key: key, Start: time.Now()}
	if n := testing.AllocsPerRun(1000, func() { ex.record(200, ex.Start) }); n > 2 {
		t.Errorf("%v allocations per request, want 2 at most", n)
	}
}

// Each operation has a name of its own.
func TestOperationNames(t *testing.T) {
	seen := map[string]bool{}
	for kind := dialect.ChatCompletions; kind <= dialect.ListInputItems; kind++ {
		name := operationNames[kind]
		if name == "" || seen[name] {
			t.Errorf("operation %d has the name %q", kind, name)
		}
		seen[name] = true
	}
	if operationNames[0] != "" {
		t.Error("what is no operation has a name")
	}
}

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
		if _, _, first := a.end(dialect.Chat); first.IsZero() == want {
			t.Errorf("%s: first token at %v", event, first)
		}
	}
}
