package tests

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/llama"
)

// llamaRig is a gateway before a real llama-server, with deployment "tiny".
func llamaRig(t *testing.T, o llama.Options) (*harness.Gateway, *harness.Client, *llama.Server) {
	t.Helper()
	server := llama.Start(t, o)
	g := harness.Start(t, harness.Options{})
	_, key := g.Key(t, "all", "*")
	con := g.Connector(t, "box", server.URL)
	g.Deploy(t, "org/tiny:1", con.ID, "", llama.Alias)
	return g, g.Client(t, key), server
}

// ask is a chat request to the real model, with an answer that is always the
// same.
func ask(prompt, more string) string {
	return fmt.Sprintf(`{"model":"org/tiny:1","temperature":0,"messages":[{"role":"user","content":%s}]%s}`,
		harness.Quote(prompt), more)
}

// A message has the parts of a chat answer, streamed or whole, that the tests compare.
type message struct {
	Content   string
	Reasoning string
	Calls     []call
	Finish    string
	Models    map[string]bool
	Usage     bool
}

type call struct{ Name, Arguments string }

// part is a choice's message or delta.
type part struct {
	Content   string `json:"content"`
	Reasoning string `json:"reasoning_content"`
	ToolCalls []struct {
		Index    int `json:"index"`
		Function struct{ Name, Arguments string }
	} `json:"tool_calls"`
}

// body is a chat answer or one chunk of it.
type body struct {
	Model   string
	Usage   *struct{}
	Choices []struct {
		Message, Delta part
		FinishReason   string `json:"finish_reason"`
	}
}

// add adds a body to the message.
func (m *message) add(t *testing.T, text string) {
	t.Helper()
	var b body
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		t.Fatalf("decoding %q: %v", text, err)
	}
	m.Models[b.Model] = true
	m.Usage = m.Usage || b.Usage != nil
	for _, c := range b.Choices {
		if c.FinishReason != "" {
			m.Finish = c.FinishReason
		}
		for _, p := range []part{c.Message, c.Delta} {
			m.Content += p.Content
			m.Reasoning += p.Reasoning
			for i, tc := range p.ToolCalls {
				at := max(tc.Index, i)
				for len(m.Calls) <= at {
					m.Calls = append(m.Calls, call{})
				}
				m.Calls[at].Name += tc.Function.Name
				m.Calls[at].Arguments += tc.Function.Arguments
			}
		}
	}
}

// converse asks through the gateway, whole or streamed.
func converse(t *testing.T, c *harness.Client, request string) message {
	t.Helper()
	a := c.Post(t, request)
	if a.Status != 200 || a.Err != nil {
		t.Fatalf("status %d, %v, %s", a.Status, a.Err, a.Body)
	}
	m := message{Models: map[string]bool{}}
	if !strings.Contains(request, `"stream":true`) {
		m.add(t, a.Body)
		return m
	}
	if !strings.HasSuffix(a.Body, "data: [DONE]\n\n") {
		t.Errorf("the stream ends with %q", a.Body[max(0, len(a.Body)-100):])
	}
	lines := bufio.NewScanner(strings.NewReader(a.Body))
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && data != "[DONE]" {
			m.add(t, data)
		}
	}
	return m
}

const weather = `,"tools":[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object",` +
	`"properties":{"city":{"type":"string"}},"required":["city"]}}}]`

// TestLlama runs the tests that need a real model server, with one server for all.
func TestLlama(t *testing.T) {
	t.Parallel()
	_, c, server := llamaRig(t, llama.Options{})
	for _, test := range []struct {
		name string
		run  func(*testing.T, *harness.Client)
	}{
		{"answers", testAnswers},
		{"more clients than slots", testMoreClientsThanSlots},
		{"agent loop", testAgentLoop},
		{"thinking", testThinking},
		{"broken calls", testBrokenCalls},
		{"context overflow", testContextOverflow},
		{"estimate", func(t *testing.T, _ *harness.Client) { testEstimate(t, server) }},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, c) })
	}
}

// Answers of a real model server arrive unchanged, whole and streamed.
func testAnswers(t *testing.T, c *harness.Client) {
	paris, tokyo := call{"get_weather", `{"city":"Paris"}`}, call{"get_weather", `{"city":"Tokyo"}`}
	for _, tc := range []struct {
		prompt, more string
		want         message
	}{
		{"hello", "", message{Content: llama.Answer, Finish: "stop"}},
		{"[[unicode]]", "", message{Content: llama.Unicode, Finish: "stop"}},
		{"[[sse]]", "", message{Content: llama.SSE, Finish: "stop"}},
		{"[[empty]]", "", message{Finish: "stop"}},
		{"[[think]]", "", message{
			Content: "After some thought: forty-two.", Finish: "stop",
			Reasoning: "The user wants something. I should ponder briefly before speaking, then give a conclusion.",
		}},
		{"weather?", weather, message{Finish: "tool_calls", Calls: []call{paris}}},
		{"[[parallel]]", weather, message{Finish: "tool_calls", Calls: []call{paris, tokyo}}},
		{"[[long]]", `,"max_completion_tokens":5`, message{Finish: "length"}},
		{strings.Repeat("a long prompt ", 300), "", message{Content: llama.Answer, Finish: "stop"}},
	} {
		for _, stream := range []string{"", `,"stream":true`} {
			t.Run(tc.prompt[:min(len(tc.prompt), 12)]+stream, func(t *testing.T) {
				got := converse(t, c, ask(tc.prompt, tc.more+stream))
				if tc.want.Finish == "length" {
					tc.want.Content = got.Content
					if n := len(strings.Fields(got.Content)); n == 0 || n > 40 {
						t.Errorf("five tokens gave %q", got.Content)
					}
				}
				if len(got.Models) != 1 || !got.Models["org/tiny:1"] {
					t.Errorf("the answer names models %v", got.Models)
				}
				if got.Usage != (stream == "") {
					t.Errorf("usage in the answer: %v", got.Usage)
				}
				compact := strings.NewReplacer(": ", ":")
				for i := range got.Calls {
					got.Calls[i].Arguments = compact.Replace(got.Calls[i].Arguments)
				}
				if got.Content != tc.want.Content || got.Finish != tc.want.Finish ||
					strings.TrimSpace(got.Reasoning) != tc.want.Reasoning || fmt.Sprint(got.Calls) != fmt.Sprint(tc.want.Calls) {
					t.Errorf("got %+v\nwant %+v", got, tc.want)
				}
			})
		}
	}
}

// Twelve clients at a server with four slots: all are served, in turn, each
// with its own answer.
func testMoreClientsThanSlots(t *testing.T, c *harness.Client) {
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() {
			req := c.Request(context.Background(), t, http.MethodPost, "/v1/chat/completions", ask("hello", ""))
			if a, err := c.Send(req); err != nil || a.Status != 200 ||
				!strings.Contains(a.Body, harness.Quote(llama.Answer)) {
				t.Errorf("%v, status %d, %s", err, a.Status, a.Body)
			}
		})
	}
	wg.Wait()
}

// A client that leaves frees the model's only slot: the server stops the answer, which would have filled the
// whole context, and takes the next request.
func TestDisconnectFreesTheSlot(t *testing.T) {
	t.Parallel()
	_, c, server := llamaRig(t, llama.Options{Slots: 1, Context: 32768})
	for _, stream := range []bool{true, false} {
		t.Run(fmt.Sprintf("stream=%v", stream), func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			more := ""
			if stream {
				more = `,"stream":true`
			}
			ended := make(chan error, 1)
			req := c.Request(ctx, t, http.MethodPost, "/v1/chat/completions", ask("[[long]]", more))
			go func() { _, err := c.Send(req); ended <- err }()
			waitBusy(t, server, 1)
			canceled := func() int { return strings.Count(server.Log(), "cancel task") }
			before := canceled()
			cancel()
			<-ended
			if a := c.Post(t, ask("hello", `,"max_tokens":5`)); a.Status != 200 {
				t.Errorf("the next request: status %d, %s", a.Status, a.Body)
			}
			if n := canceled() - before; n != 1 {
				t.Errorf("the server has canceled %d tasks", n)
			}
			waitBusy(t, server, 0)
		})
	}
}

func waitBusy(t *testing.T, server *llama.Server, n int) {
	t.Helper()
	harness.Poll(t, limit, fmt.Sprintf("%d slots being busy", n), func(ctx context.Context) error {
		got, err := server.Busy(ctx)
		if err == nil && got != n {
			err = fmt.Errorf("%d are", got)
		}
		return err
	})
}
