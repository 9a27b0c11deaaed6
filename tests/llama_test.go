package tests

import (
	"context"
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
		{"not supported", testNotSupported},
		{"estimate", func(t *testing.T, _ *harness.Client) { testEstimate(t, server) }},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, c) })
	}
}

// Answers of a real model server arrive unchanged, whole and streamed.
func testAnswers(t *testing.T, c *harness.Client) {
	for _, tc := range []struct{ prompt, more, text, stop string }{
		{"hello", "", llama.Answer, "stop"},
		{"[[unicode]]", "", llama.Unicode, "stop"},
		{"[[sse]]", "", llama.SSE, "stop"},
		{"[[empty]]", "", "", "stop"},
		{"[[long]]", `,"max_completion_tokens":5`, "one two", "length"},
		{strings.Repeat("a long prompt ", 300), "", llama.Answer, "stop"},
	} {
		for _, stream := range []string{"", `,"stream":true`} {
			t.Run(tc.prompt[:min(len(tc.prompt), 12)]+stream, func(t *testing.T) {
				got := askChat(t, c, []any{userMessage(tc.prompt)}, tc.more+stream+`,"temperature":0`)
				if tc.stop == "length" && strings.HasPrefix(got.Text, tc.text) && len(got.Text) < 200 {
					got.Text = tc.text
				}
				if got.Text != tc.text || got.Stop != tc.stop || got.Thinking != "" || len(got.Calls) != 0 {
					t.Errorf("got %+v, want %+v", got, tc)
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
			served(t, c.Post(t, ask("hello", `,"max_tokens":5`)), "the next request")
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
