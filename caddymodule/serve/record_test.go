package serve

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/store"
)

// The cost of a request is recorded, and nothing of its content.
func TestRecord(t *testing.T) {
	g := newGateway(t, 64<<20)
	key, secret := g.newKey(t, "*")
	begun := time.Now().Add(-3 * time.Second)
	ex := &Exchange{
		RequestID: "req_1", Account: store.DefaultAccount, Key: key, Start: begun, Streamed: true, Deployment: "qwen3:8b",
		Operation: dialect.Operation{Kind: dialect.CreateMessage, Dialect: dialect.Messages}, Model: "a prompt, by mistake",
		Usage: dialect.Usage{PromptTokens: 120, CompletionTokens: 30},
	}
	g.record(ex, 200, begun.Add(time.Second))
	unknown := &Exchange{RequestID: "req_2", Account: store.DefaultAccount, Key: key, Start: time.Now(), Model: "a prompt, by mistake"}
	g.record(unknown, 404, time.Time{})

	recent := g.backend.Activity.Recent(store.DefaultAccount)
	if len(recent) != 2 {
		t.Fatalf("recorded %+v", recent)
	}
	got := recent[1]
	if got.Duration < 3*time.Second || got.Duration > time.Minute || got.FirstToken != time.Second {
		t.Errorf("duration %v, first token %v", got.Duration, got.FirstToken)
	}
	if got.ID != "req_1" || got.KeyID != key.ID() || got.KeyName != "test" || got.Deployment != "qwen3:8b" || got.Dialect != "messages" ||
		got.Operation != "messages" || got.Status != 200 || !got.Streamed || got.InputTokens != 120 || got.OutputTokens != 30 || !got.Time.Equal(begun) {
		t.Errorf("recorded %+v", got)
	}
	if recent[0].Status != 404 || recent[0].FirstToken != 0 {
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
	ex := &Exchange{RequestID: "req_1", Account: store.DefaultAccount, Key: key, Start: time.Now()}
	if n := testing.AllocsPerRun(1000, func() { g.record(ex, 200, ex.Start) }); n > 2 {
		t.Errorf("%v allocations per request, want 2 at most", n)
	}
}

// Each operation has a name of its own.
func TestOperationNames(t *testing.T) {
	seen := map[string]bool{}
	for kind := dialect.ChatCompletions; kind <= dialect.ListInputItems; kind++ {
		name := operationName(kind)
		if name == "" || seen[name] {
			t.Errorf("operation %d has the name %q", kind, name)
		}
		seen[name] = true
	}
	if operationName(0) != "" || operationName(dialect.ListInputItems+1) != "" {
		t.Error("what is no operation has a name")
	}
}

// The first token is the first of the model's output, not the role before it.
func TestSendsContent(t *testing.T) {
	through := &answer{stream: dialect.NewChatStream(dialect.ChatStreamOptions{})}
	for events, want := range map[string]bool{
		`data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`:                 false,
		`data: {"choices":[{"index":0,"delta":{"role":"assistant","content":null}}]}`:               false,
		`data: {"choices":[{"index":0,"delta":{"role":"assistant"}}]}`:                              false,
		`data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"","tool_calls":[]}}]}`: false,
		`data: [DONE]`: false,
		`data: {"choices":[{"index":0,"delta":{"content":"H"}}]}`:                                                                    true,
		`data: {"choices": [{"index": 0, "delta": {"content": "H"}}]}`:                                                               true,
		`data: {"choices":[{"delta":{"role":"assistant","content":""}}]}` + "\n\n" + `data: {"choices":[{"delta":{"content":"H"}}]}`: true,
		`data: {"choices":[{"delta":{"content":"","reasoning_content":"Hm"}}]}`:                                                      true,
		`data: {"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}`:                                                                 true,
		`data: {"choices":[{"index":0,"text":"H"}]}`:                                                                                 true,
	} {
		if got := through.sendsContent([]byte(events)); got != want {
			t.Errorf("%s: %v", events, got)
		}
	}
	if translated := (&answer{stream: &touchyStream{}}); !translated.sendsContent([]byte("event: content_block_start")) {
		t.Error("a translated stream has content behind its opening")
	}
}
