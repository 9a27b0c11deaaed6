package tokenizers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/inprocess"
	"github.com/postern-dev/postern/tests/rig"
	"github.com/postern-dev/postern/tests/upstream"
)

// A conversation that outgrows a window gets few answers to prompts that were cut before one is refused.
func TestGrowingConversations(t *testing.T) {
	install(t)
	texts := sources(t)
	for _, model := range models {
		t.Run(model, func(t *testing.T) {
			k := start(t, model)
			g := harness.StartInProcess(t, inprocess.Options{})
			for name, overflow := range map[string]upstream.Overflow{
				"cut to half": upstream.CutsToHalf, "without old turns": upstream.DropsTurns,
			} {
				for _, kind := range []string{"prose", "code", "chinese"} {
					t.Run(kind+" "+name, func(t *testing.T) {
						grow(t, g, &upstream.Windowed{Window: 4096, Overflow: overflow, Count: k.raw}, texts[kind])
					})
				}
			}
		})
	}
}

// raw counts the tokens of messages as the model server gets them.
func (k *tokenizer) raw(messages []json.RawMessage, tools json.RawMessage) int {
	n := 0
	for _, m := range messages {
		n += len(m)
	}
	if n > 1<<20 { // the prompt that measures the window
		return n / 2
	}
	return k.count(map[string]any{"messages": messages, "tools": tools})
}

// grow sends a conversation that becomes longer until it is refused.
func grow(t *testing.T, g *harness.Gateway, w *upstream.Windowed, text source) {
	t.Helper()
	name := fmt.Sprintf("m%d", time.Now().UnixNano())
	_, key := g.Key(t, name, "*")
	up := upstream.Start(t)
	w.Serve(up, name)
	g.Deploy(t, name, g.Connector(t, name, up.URL).ID, "", name)
	client, rnd := g.Client(t, key), rand.New(rand.NewPCG(1, 2))
	var messages []message
	for turn, cuts := 1, 0; ; turn++ {
		messages = append(messages, message{Role: "user", Content: text(rnd, 1500)})
		body, _ := json.Marshal(map[string]any{"model": name, "messages": messages}) // such values are valid
		_, before, _ := w.Numbers()
		if status := client.Post(t, string(body)).Status; status == http.StatusBadRequest {
			t.Logf("turn %d is refused, after %d answers to prompts that were cut", turn, cuts)
			return
		} else if status != http.StatusOK {
			t.Fatalf("turn %d: status %d", turn, status)
		}
		if _, after, _ := w.Numbers(); after > before {
			if cuts++; cuts > 2 {
				t.Fatalf("turn %d: %d answers to prompts that were cut", turn, cuts)
			}
			// A person reads the answer, and the window is measured.
			_ = rig.Poll(t.Context(), harness.Patience/4, 100*time.Millisecond, "", func(ctx context.Context) error {
				return known(ctx, g, name)
			})
		}
		messages = append(messages, message{Role: "assistant", Content: "Yes. " + text(rnd, 200)})
	}
}

// known reports whether the window of a deployment is known.
func known(ctx context.Context, g *harness.Gateway, name string) error {
	var all []struct {
		Name   string `json:"name"`
		Window int    `json:"context_window"`
	}
	if err := g.Gateway.Manage(ctx, http.MethodGet, "/deployments", nil, &all); err != nil {
		return err
	}
	for _, d := range all {
		if d.Name == name && d.Window > 0 {
			return nil
		}
	}
	return errors.New("the window is not known")
}
