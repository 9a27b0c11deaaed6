package dialect

import (
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect/kept"
	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
	"github.com/postern-dev/postern/tests/rig/odd"
)

// checkDecoded checks that a body is either refused as the client's fault, or results in a chat request
// that model servers can read.
func checkDecoded(t *testing.T, op Operation, body []byte) {
	env := keptEnv(kept.NewStore(func() time.Time { return time.Unix(1700000000, 0) }), "acme")
	c, fault := Decode(op, body, env)
	if fault != nil {
		if status := fault.HTTPStatus(op.Dialect); status < 400 || status > 499 || fault.Message == "" {
			t.Fatalf("%d %s", status, fault.Message)
		}
		return
	}
	dropped := c.Dropped()
	if len(dropped) > maxDropped || strings.ContainsFunc(dropped, func(r rune) bool { return r < ' ' || r > '~' }) {
		t.Fatalf("not safe for a header: %q", dropped)
	}
	up, err := io.ReadAll(c.Body("up"))
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := io.ReadAll(c.Body("up")); !bytes.Equal(again, up) {
		t.Fatal("the body is not the same again")
	}
	checkChatRequest(t, up, c.Streamed())
	if c.Streamed() {
		translate(c.NewStream(), contentChunk("a")+finishChunk("stop")+upstreamDone, nil)
	}
	told, _, fault := c.Answer([]byte(wholeBody(`"content":"a"`, `"stop"`, "")))
	if fault != nil {
		t.Fatal(fault.Message)
	}
	if !json.Valid(told) {
		t.Fatalf("the answer is not JSON: %s", told)
	}
	countPrompt(c)
}

// countPrompt counts the prompt, as after the answer to a request.
func countPrompt(c Call) {
	if p := c.Prompt(); p != nil {
		counter.Estimate("key", p)
	}
}

// counter is the counter of all tests.
var counter = tokens.NewCounter()

// chatMessage is a message of a chat request.
type chatMessage struct {
	Role    string
	Content any
	Calls   []struct {
		ID, Type string
		Function struct{ Name, Arguments *string }
	} `json:"tool_calls"`
	Result string `json:"tool_call_id"`
}

// checkChatRequest checks the rules for all bodies of the upstream.
func checkChatRequest(t *testing.T, body []byte, stream bool) {
	t.Helper()
	var r struct {
		Model    string
		Stream   bool
		Options  map[string]bool `json:"stream_options"`
		Messages []chatMessage
		Tools    []struct {
			Type     string
			Function struct {
				Name       string
				Parameters map[string]any
			}
		}
		ToolChoice *string `json:"tool_choice"`
		Parallel   *bool   `json:"parallel_tool_calls"`
	}
	numbers := json.NewDecoder(bytes.NewReader(body))
	numbers.UseNumber() // 1e999 is one
	if err := numbers.Decode(&r); err != nil || !json.Valid(body) {
		t.Fatalf("%v in %s", err, body)
	}
	if r.Model != "up" || len(r.Messages) == 0 {
		t.Fatalf("model or messages: %s", body)
	}
	if r.Stream != stream || r.Options["include_usage"] != stream {
		t.Fatalf("stream: %s", body)
	}
	if r.Tools == nil && (r.ToolChoice != nil || r.Parallel != nil) || r.Tools != nil && len(r.Tools) == 0 {
		t.Fatalf("settings without tools: %s", body)
	}
	seen := map[string]bool{}
	for _, tool := range r.Tools {
		f := tool.Function
		if tool.Type != "function" || f.Name == "" || seen[f.Name] ||
			f.Parameters["type"] == nil && f.Parameters["properties"] == nil {
			t.Fatalf("tool %q: %s", f.Name, body)
		}
		seen[f.Name] = true
	}
	checkMessageOrder(t, r.Messages, body)
}

// checkMessageOrder checks that there is at most one system message, which comes first, and that
// results directly follow their calls, in the same order.
func checkMessageOrder(t *testing.T, messages []chatMessage, body []byte) {
	t.Helper()
	var open []string // calls that may have a result yet
	for i, m := range messages {
		switch m.Role {
		case "system":
			if i > 0 {
				t.Fatalf("message %d: %s", i, body)
			}
		case "tool":
			for len(open) > 0 && open[0] != m.Result {
				open = open[1:]
			}
			if len(open) == 0 {
				t.Fatalf("message %d is of no call: %s", i, body)
			}
			open = open[1:]
			continue
		case "user", "assistant":
		default:
			t.Fatalf("message %d: %s", i, body)
		}
		if m.Content == nil {
			t.Fatalf("message %d has no content: %s", i, body)
		}
		open = nil
		for _, call := range m.Calls {
			if call.Type != "function" || call.Function.Name == nil || call.Function.Arguments == nil ||
				!json.Valid([]byte(*call.Function.Arguments)) {
				t.Fatalf("message %d, call %q: %s", i, call.ID, body)
			}
			open = append(open, call.ID)
		}
	}
}

// Histories that no client would send result in valid requests, too.
func TestAnyHistory(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 4))
	for range 500 {
		var messages, items []string
		for range 1 + r.IntN(6) {
			messages = append(messages, blockCases[r.IntN(len(blockCases))].in)
			items = append(items, itemCases[r.IntN(len(itemCases))].in)
		}
		for op, body := range map[Operation]string{
			messagesOp:  `{"model":"m","max_tokens":9,"messages":[` + strings.Join(messages, ",") + `]}`,
			responsesOp: `{"model":"m","input":[` + strings.Join(items, ",") + `]}`,
		} {
			if _, fault := Decode(op, []byte(body), testEnv()); fault != nil {
				t.Fatalf("%s\n%s", fault.Message, body)
			}
			checkDecoded(t, op, []byte(body))
		}
	}
}

func FuzzMessagesRequest(f *testing.F) {
	for _, body := range requestSeeds()[messagesOp] {
		f.Add([]byte(body))
	}
	f.Add([]byte(`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"u"}],"tools":[{"type":` +
		`"browser_toolset_1","configs":{"zoom":{"enabled":false}}}],"context_management":{"edits":[{"type":"x"}]},"y":1}`))
	for _, c := range messagesFaults {
		f.Add([]byte(c.body))
	}
	for _, shape := range odd.Shapes {
		f.Add([]byte(shape))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		checkDecoded(t, messagesOp, body)
		if _, fault := Decode(countOp, body, testEnv()); fault != nil && fault.HTTPStatus(Messages) != 400 {
			t.Fatal(fault.Message)
		}
	})
}

func FuzzResponsesRequest(f *testing.F) {
	for _, body := range requestSeeds()[responsesOp] {
		f.Add([]byte(body))
	}
	for _, c := range itemFaults {
		f.Add([]byte(`{"model":"m","input":[` + c.in + `]}`))
	}
	for _, c := range responsesFaults {
		f.Add([]byte(c.body))
	}
	for _, shape := range odd.Shapes {
		f.Add([]byte(shape))
	}
	f.Fuzz(func(t *testing.T, body []byte) { checkDecoded(t, responsesOp, body) })
}
