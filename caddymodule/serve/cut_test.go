package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/window"
)

// cutter is a model server that cuts prompts as Ollama does: whole old turns until the rest fits, or all but the last
// half of the window and four tokens.
type cutter struct {
	window  int
	factor  float64 // tokens per token of the gateway
	drops   bool    // old turns
	cut     int     // prompts
	answer  string
	counter *tokens.Counter
}

func (c *cutter) size(messages []json.RawMessage, tools json.RawMessage) int {
	all, _ := json.Marshal(messages)
	prompt := tokens.NewPrompt(func() ([]byte, []byte) { return all, tools })
	return int(c.factor * float64(c.counter.Estimate("model server", prompt).Tokens))
}

func (c *cutter) serve(r *http.Request) *http.Response {
	var request struct {
		Messages []json.RawMessage
		Tools    json.RawMessage
	}
	body, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(body, &request)
	n := c.size(request.Messages, request.Tools)
	if n > c.window {
		c.cut++
		n = c.window/2 + 2
		for from := 1; c.drops && from < len(request.Messages); from++ {
			kept := append([]json.RawMessage{request.Messages[0]}, request.Messages[from:]...)
			if whole := c.size(kept, request.Tools); whole <= c.window {
				n = whole
				break
			}
		}
	}
	answer := strings.Replace(c.answer, `"prompt_tokens":1`, fmt.Sprintf(`"prompt_tokens":%d`, n), 1)
	return upstreamAnswer("application/json", strings.NewReader(answer), -1)
}

// testCutter tests a gateway before a model server that cuts prompts. The gateway measures windows.
func testCutter(t *testing.T, c *cutter, test func(t *testing.T, g *windowGateway)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c.counter, c.answer, c.cut = tokens.NewCounter(), completionOf("hi"), 0
		g := newWindowGateway(t)
		g.answer = c.serve
		g.backend.Observed.Measure = func(_ context.Context, d store.Deployment, connector string) (again bool) {
			result := window.Read(http.StatusOK, fmt.Appendf(nil, `{"usage":{"prompt_tokens":%d}}`, c.window/2+2))
			g.backend.Observed.Measured(&d, connector, int(result.Window), result.Cuts)
			return false
		}
		test(t, g)
		g.backend.Observed.Close()
	})
}

// ask sends a conversation, and reports whether it was refused.
func (g *windowGateway) ask(t *testing.T, messages ...string) (refusal string) {
	t.Helper()
	var all []map[string]string
	for i, m := range messages {
		all = append(all, map[string]string{"role": []string{"user", "assistant"}[i%2], "content": m})
	}
	body, _ := json.Marshal(map[string]any{"model": "m", "max_tokens": 9, "system": "Be brief.", "messages": all})
	w := g.post("/v1/messages", string(body))
	time.Sleep(time.Minute) // until the count is learned, and the window is measured
	synctest.Wait()
	if w.Code != http.StatusOK {
		return w.Body.String()
	}
	return ""
}

// A key that sends overlong prompts alone gets one cut answer, none if the window is known.
func TestOverlongPromptsOfANewKey(t *testing.T) {
	for _, factor := range []float64{0.75, 1, 1.2, 2.6} {
		c := &cutter{window: 4096, factor: factor}
		for _, known := range []bool{true, false} {
			testCutter(t, c, func(t *testing.T, g *windowGateway) {
				if known {
					g.backend.Observed.Measured(new(g.deployment()), g.deployment().Connectors[0], 4096, true)
				}
				count := func() string {
					return g.post("/v1/messages/count_tokens", withText("/v1/messages", wordsOf(20_000))).Body.String()
				}
				before := count()
				var refusals []string
				for range 4 {
					refusals = append(refusals, g.ask(t, wordsOf(20_000)))
				}
				want := map[bool]int{true: 0, false: 1}[known]
				if c.cut != want || (refusals[0] == "") == known || !strings.Contains(refusals[1], " tokens > 4096 maximum. "+
					"The model server cuts longer prompts. If it is Ollama, set OLLAMA_CONTEXT_LENGTH there.") {
					t.Errorf("factor %v: %d cut answers, %q", factor, c.cut, refusals)
				}
				if after := count(); after != before {
					t.Errorf("count_tokens was %s before, and is %s", before, after)
				}
				dropped := 0
				for _, r := range g.backend.Activity.Recent(store.DefaultAccount) {
					if r.Dropped == cutPart {
						dropped++
					}
				}
				if dropped != want {
					t.Errorf("factor %v: %d of %d cut requests in the activity", factor, dropped, want)
				}
				if refusal := g.ask(t, wordsOf(1200)); refusal != "" && factor < 2 {
					t.Errorf("a prompt that fits: %s", refusal)
				}
			})
		}
	}
}

// A conversation that outgrows the window gets at most two cut answers.
func TestGrowingConversations(t *testing.T) {
	for _, factor := range []float64{0.75, 1, 1.2} {
		for _, drops := range []bool{true, false} {
			for _, turn := range []int{20, 150, 400, 900} {
				c := &cutter{window: 4096, factor: factor, drops: drops}
				testCutter(t, c, func(t *testing.T, g *windowGateway) {
					messages, refusal := []string{wordsOf(int(3500 / factor))}, ""
					for range 60 {
						if refusal = g.ask(t, messages...); refusal != "" {
							break
						}
						messages = append(messages, wordsOf(turn/3), wordsOf(turn))
					}
					if t.Logf("factor %v, drops %v, turns of %d: %d cut answers", factor, drops, turn, c.cut); refusal == "" ||
						c.cut > 2 {
						t.Errorf("refused: %s", refusal)
					}
				})
			}
		}
	}
}

// A server that lists other models has its window.
func TestWindowOfAModelThatIsNotListed(t *testing.T) {
	g := newWindowGateway(t)
	connector := g.deployment().Connectors[0]
	for state, want := range map[health.State]int{
		health.ModelMissing: 1000, health.Hanging: 1000, health.ServerDown: 0, health.UpstreamMissing: 0,
	} {
		g.set(t, func(d *store.Deployment) { d.Options = compat.Options{ContextWindow: 1000} })
		g.routes[connector] = tunnel.DeploymentRoute{State: state, Since: time.Now()}
		status := map[int]int{1000: http.StatusBadRequest, 0: http.StatusOK}[want] // the fake tunnel is there
		const path = "/v1/chat/completions"
		if w := g.post(path, withText(path, wordsOf(2000))); g.list(t) != want || w.Code != status {
			t.Errorf("%s: window %d, %d %s", state, g.list(t), w.Code, w.Body)
		}
	}
}

// Refusals do not depend on what other keys have sent.
func TestRefusalsOfKeysAreTheirOwn(t *testing.T) {
	c := &cutter{window: 4096, factor: 1.2}
	testCutter(t, c, func(t *testing.T, g *windowGateway) {
		g.backend.Observed.Measured(new(g.deployment()), g.deployment().Connectors[0], 4096, true)
		start, rest := wordsOf(3300), wordsOf(350)
		own := g.secret
		if refusal := g.ask(t, start); refusal != "" {
			t.Fatal(refusal)
		}
		_, g.secret = g.newKey(t, store.DefaultAccount, "*")
		if refusal := g.ask(t, start, "yes", rest); refusal != "" {
			t.Errorf("another key: %s", refusal)
		}
		g.secret = own
		if refusal := g.ask(t, start, "yes", rest); refusal == "" {
			t.Error("the key whose count of the beginning is known was not refused")
		}
	})
}
