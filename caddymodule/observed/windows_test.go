package observed

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

var begun = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// bench is a table with a clock, a deployment and its route.
type bench struct {
	*Table
	now         time.Time
	d           store.Deployment
	route       tunnel.DeploymentRoute
	changes     []string
	calibration *tokens.Calibration
}

func newBench() *bench {
	b := &bench{
		now:         begun.Add(time.Minute),
		d:           store.Deployment{Account: "default", Name: "m", UpdatedAt: begun, Connectors: []string{"con_1"}},
		route:       tunnel.DeploymentRoute{State: health.Available, Since: begun},
		calibration: tokens.NewCalibration(tokens.NewCounter(), nil),
	}
	b.Table = New(func() time.Time { return b.now })
	b.Deployment = func(_, name string) (store.Deployment, bool) { return b.d, name == b.d.Name }
	b.Route = func(string, tunnel.Target) (tunnel.DeploymentRoute, bool) { return b.route, true }
	b.Changed = func(_, _, connector string, found health.Finding) {
		b.changes = append(b.changes, fmt.Sprint(connector, " ", found.State, " ", found.Window))
	}
	return b
}

// window returns the window in force, with the state.
func (b *bench) window() string {
	w := b.Window(&b.d, "con_1", "", b.route)
	return fmt.Sprint(w.Tokens, " ", w.Source, " ", b.State(&b.d, "con_1", b.route).State)
}

func (b *bench) expect(t *testing.T, what, want string) {
	t.Helper()
	if got := b.window(); got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// count learns a count of a prompt.
func (b *bench) count(key string, p *tokens.Prompt, n int, correct bool) {
	r := tokens.NewRegistration(b.d.Account, b.d.Name, b.d.UpdatedAt)
	b.counted(n, b.calibration.Learn(r, "con_1", key, p, int64(n), correct))
}

// counted records a count.
func (b *bench) counted(n int, e tokens.Evidence) {
	b.Counted(tokens.NewRegistration(b.d.Account, b.d.Name, b.d.UpdatedAt), "con_1", "key", n, e)
}

func TestWindowSources(t *testing.T) {
	b := newBench()
	const none = "0  available"
	b.expect(t, "nothing is known", none)
	b.counted(3000, tokens.Evidence{})
	b.expect(t, "a count", none)
	b.counted(3000, tokens.Evidence{Shrunk: true})
	b.expect(t, "cut", "3072 cut cuts prompts")
	b.Refused(&b.d, "con_1", 4096)
	b.expect(t, "a refusal", "4096 refusal available")
	b.Measured(&b.d, "con_1", 8192, true)
	b.expect(t, "a measurement that is newer", "8192 measured cuts prompts")
	b.Refused(&b.d, "con_1", 2048)
	b.expect(t, "a refusal that is newer", "2048 refusal available")
	b.route.Window = 16384
	b.expect(t, "listed", "16384 listed available")
	b.d.Options = compat.Options{ContextWindow: 1000}
	b.expect(t, "the option", "1000 option available")
	if w := b.Window(&b.d, "con_2", "", tunnel.DeploymentRoute{}); w.Tokens != 1000 {
		t.Errorf("the option has the window %d at another connector", w.Tokens)
	}
	b.d.Options, b.route.Window, b.route.State = compat.Options{}, 0, health.ServerDown
	b.expect(t, "the model server is down", "2048 refusal model server down")
	old := b.d
	old.UpdatedAt = begun.Add(-time.Hour)
	b.Refused(&old, "con_1", 1024)
	b.expect(t, "a refusal from before the deployment's last change", "2048 refusal model server down")
	want := []string{"con_1 cuts prompts 3072", "con_1 available 0"} // and no more within an hour
	if !slices.Equal(b.changes, want) {
		t.Errorf("changes %q, want %q", b.changes, want)
	}
}

func TestWindowEnds(t *testing.T) {
	changed := func(b *bench) { b.OnChange(store.Change{Kind: store.KindDeployment, Account: "default", ID: "m"}) }
	for name, end := range map[string]func(b *bench){
		"an hour":         func(b *bench) { b.now = b.now.Add(time.Hour) },
		"a new tunnel":    func(b *bench) { b.route.Since = b.now.Add(time.Second) },
		"a longer prompt": func(b *bench) { b.counted(3073, tokens.Evidence{}) },
		"another version": func(b *bench) { b.d.UpdatedAt = b.now },
		"the removal":     changed,
	} {
		for source, record := range map[string]func(b *bench){
			"3072 refusal available":     func(b *bench) { b.Refused(&b.d, "con_1", 3072) },
			"3072 measured available":    func(b *bench) { b.Measured(&b.d, "con_1", 3072, false) },
			"3072 cut cuts prompts":      func(b *bench) { b.counted(3072, tokens.Evidence{Shrunk: true}) },
			"1000 refusal available":     func(b *bench) { b.Refused(&b.d, "con_1", 1000) },
			"3000 measured cuts prompts": func(b *bench) { b.Measured(&b.d, "con_1", 3000, true) },
		} {
			b := newBench()
			record(b)
			b.OnChange(store.Change{Kind: store.KindDeployment, Account: "default", ID: "other"})
			b.OnChange(store.Change{Kind: store.KindKey, Account: "default", ID: "m"})
			b.counted(900, tokens.Evidence{})
			b.expect(t, source, source)
			end(b)
			b.expect(t, source+" after "+name, "0  available")
		}
	}
}

// After the end of a window, it takes the whole evidence again. What a prompt without a problem shows is the end, too.
func TestEvidenceStartsAgain(t *testing.T) {
	b := newBench()
	low := func(estimate int) { b.counted(2050, tokens.Evidence{TooLow: estimate}) }
	low(9000)
	low(9010)
	b.expect(t, "two prompts of the same size", "0  available")
	low(9100)
	b.expect(t, "the same count twice", "4096 cut cuts prompts")
	b.now = b.now.Add(time.Hour)
	low(9200)
	b.expect(t, "an hour later", "0  available")
	low(9300)
	b.expect(t, "twice again", "4096 cut cuts prompts")
	b.route.Since = b.now.Add(time.Second)
	b.now = b.now.Add(time.Minute)
	low(9400)
	b.expect(t, "after a reconnect", "0  available")
	b.counted(5000, tokens.Evidence{})
	low(9500)
	b.expect(t, "it has answered a longer prompt", "0  available")
	want := []string{
		"con_1 cuts prompts 4096", "con_1 available 0", "con_1 cuts prompts 4096", "con_1 available 0",
	}
	if !slices.Equal(b.changes, want) {
		t.Errorf("changes %q, want %q", b.changes, want)
	}
}

func TestLookUpsAllocateNothing(t *testing.T) {
	b := newBench()
	b.Refused(&b.d, "con_1", 4096)
	if n := testing.AllocsPerRun(100, func() {
		b.Window(&b.d, "con_1", "", b.route)
		b.State(&b.d, "con_1", b.route)
		b.Window(&b.d, "con_2", "", b.route)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// message is a message of a chat.
type message struct {
	Role      string `json:"role"`
	Content   string `json:"content"`
	Reasoning string `json:"reasoning_content,omitempty"`
}

// promptOf returns the prompt of a conversation.
func promptOf(t *testing.T, messages []message, tools string) *tokens.Prompt {
	t.Helper()
	raw, err := json.Marshal(messages)
	if err != nil {
		t.Fatal(err)
	}
	return tokens.NewPrompt(raw, []byte(tools))
}

// words returns a text of about n tokens.
func words(r *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		b.WriteString([...]string{"model ", "stream ", "window ", "answer ", "prompt ", "token ", "the ", "of "}[r.IntN(8)])
	}
	return b.String()
}

// size returns the tokens of a prompt, by a tokenizer with this ratio to the gateway's.
func size(c *tokens.Counter, p *tokens.Prompt, ratio float64) int {
	return int(math.Ceil(ratio * float64(c.Estimate("model server", p).Tokens)))
}

// conversation is one that grows by turns, with tool calls and thinking.
type conversation struct {
	key      string
	messages []message
	tools    string
	ratio    float64 // of its language
	counted  int     // messages that the server has in its cache
}

func newConversation(r *rand.Rand, id int, ratio float64) *conversation {
	c := &conversation{key: fmt.Sprint("key_", id%3), ratio: ratio}
	if r.IntN(2) == 0 {
		c.tools = `[{"type":"function","function":{"name":"look","description":"` + words(r, 100) + `"}}]`
	}
	c.messages = []message{
		{Role: "system", Content: words(r, 1+r.IntN(3000))}, {Role: "user", Content: words(r, 1+r.IntN(1000))},
	}
	return c
}

// grow adds what the model and then the user or a tool have said.
func (c *conversation) grow(r *rand.Rand, thinking int) {
	answer := message{Role: "assistant", Content: words(r, r.IntN(300))}
	if thinking > 0 {
		answer.Reasoning = words(r, r.IntN(thinking))
	}
	role := [...]string{"user", "tool", "tool"}[r.IntN(3)]
	c.messages = append(c.messages, answer, message{Role: role, Content: words(r, 1+r.IntN(500))})
}

// A server that reads whole prompts is never thought to cut them, whatever its tokenizer, template and cache do.
func TestHonestServersDoNotCut(t *testing.T) {
	for name, s := range map[string]struct {
		lowest, highest float64 // tokens per token of the gateway, by conversation
		thinking        int     // tokens of an answer that the template drops in the next turn
		cached          bool    // the server does not count what it has cached
	}{
		"one tokenizer":         {1.1, 1.1, 0, false},
		"few tokens":            {0.5, 0.5, 0, false},
		"many tokens":           {2.6, 2.6, 0, false},
		"many languages":        {0.5, 2.6, 0, false},
		"thinking":              {1.1, 1.2, 3000, false},
		"thinking in languages": {0.5, 2.6, 2000, false},
		"caches":                {0.5, 2.6, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			counter := tokens.NewCounter()
			for seed := range uint64(3) {
				r, b := rand.New(rand.NewPCG(seed, 1)), newBench()
				var all []*conversation
				for i := range 100 {
					b.now = b.now.Add(time.Duration(r.IntN(300)) * time.Second)
					if len(all) == 0 || r.IntN(12) == 0 {
						all = append(all, newConversation(r, i, s.lowest+r.Float64()*(s.highest-s.lowest)))
					}
					c := all[max(0, len(all)-1-r.IntN(4))]
					if r.IntN(5) > 0 { // else the request is sent again
						c.grow(r, s.thinking)
					}
					p := promptOf(t, c.messages, c.tools)
					n := size(counter, p, c.ratio)
					if s.cached && r.IntN(8) > 0 {
						n = max(n-size(counter, promptOf(t, c.messages[:c.counted], c.tools), c.ratio), 1)
					}
					c.counted = len(c.messages)
					b.count(c.key, p, n, r.IntN(3) > 0)
					if w := b.Window(&b.d, "con_1", "", b.route); w.Tokens > 0 {
						t.Fatalf("seed %d: after %d tokens, the window is %d (%s)", seed, n, w.Tokens, w.Source)
					}
				}
			}
		})
	}
}

// cut returns the count of a server that cuts prompts as Ollama does: whole old turns, until the rest fits, or all but
// the last half of the window.
func cut(t *testing.T, counter *tokens.Counter, c *conversation, window int) int {
	t.Helper()
	for from := 1; from < len(c.messages); from++ {
		kept := append([]message{c.messages[0]}, c.messages[from:]...)
		if n := size(counter, promptOf(t, kept, c.tools), c.ratio); n <= window {
			return n
		}
	}
	return window/2 + 2
}

// An overlong system prompt shows the window exactly, with the second prompt that is counted.
func TestCutSystemPrompts(t *testing.T) {
	for _, window := range []int{4096, 6000, 8192, 16384, 32768} {
		for _, ratio := range []float64{0.6, 1.1, 2.6} {
			r, b, counter := rand.New(rand.NewPCG(1, 2)), newBench(), tokens.NewCounter()
			for range 6 { // prompts that fit
				c := &conversation{ratio: ratio, messages: []message{{Role: "user", Content: words(r, 400)}}}
				b.count("key", promptOf(t, c.messages, ""), cut(t, counter, c, window), true)
			}
			c := &conversation{ratio: ratio, messages: []message{
				{Role: "system", Content: words(r, int(3*float64(window)/min(ratio, 1)))}, {Role: "user", Content: "hello"},
			}}
			for range 2 {
				b.expect(t, "before", "0  available")
				b.count("key", promptOf(t, c.messages, ""), cut(t, counter, c, window), true)
				c.messages = append(c.messages, message{Role: "assistant", Content: "What can I do for you?"},
					message{Role: "user", Content: "Nothing, I only wanted to be polite to you."})
			}
			b.expect(t, fmt.Sprintf("%d, ratio %v", window, ratio), fmt.Sprint(window, " cut cuts prompts"))
		}
	}
}

// A conversation that outgrows the window shows it, too: a lower bound, as usage never leaves the window.
func TestCutConversations(t *testing.T) {
	for _, window := range []int{4096, 8192, 16384} {
		for seed := range uint64(6) {
			r, b, counter := rand.New(rand.NewPCG(seed, 3)), newBench(), tokens.NewCounter()
			c, largest, outgrown, n := newConversation(r, 1, 1.2), 0, 0, 0
			for b.Window(&b.d, "con_1", "", b.route).Tokens == 0 {
				if outgrown++; outgrown > 80 {
					t.Fatalf("window %d, seed %d: not detected", window, seed)
				}
				c.grow(r, 0)
				p := promptOf(t, c.messages, c.tools)
				if size(counter, p, c.ratio) <= window {
					outgrown = 0
				}
				n = cut(t, counter, c, window)
				largest = max(largest, n)
				b.count(c.key, p, n, outgrown%3 == 0)
			}
			w := b.Window(&b.d, "con_1", "", b.route)
			t.Logf("window %d, seed %d: %d after %d cut prompts", window, seed, w.Tokens, outgrown)
			if w.Tokens < largest || w.Tokens > window+windowUnit || w.Source != Cut {
				t.Errorf("window %d, seed %d: %d %s, and the largest count is %d", window, seed, w.Tokens, w.Source, largest)
			}
		}
	}
}

// Turns of equal length can make the counts of cut prompts equal. The window is then not taken for half of one.
func TestCutTurnsOfEqualLength(t *testing.T) {
	b, counter, turn := newBench(), tokens.NewCounter(), strings.Repeat("quartz sphinx ", 50)
	messages := []message{{Role: "system", Content: turn}}
	for range 30 {
		messages = append(messages, message{Role: "user", Content: turn}, message{Role: "assistant", Content: turn})
		p := promptOf(t, messages, "")
		b.count("key", p, min(size(counter, p, 1), 8000), true)
	}
	b.expect(t, "after turns of equal length", "8192 cut cuts prompts")
}

// A server that reports the same count for all prompts does not count them.
func TestConstantCounts(t *testing.T) {
	b, messages := newBench(), []message{}
	for range 8 {
		messages = append(messages, message{Role: "user", Content: strings.Repeat("quartz sphinx ", 400)})
		b.count("key", promptOf(t, messages, ""), 100, true)
	}
	b.expect(t, "after constant counts", "0  available")
}

// A cut that one client has seen concerns its requests alone, until another one has seen it, too.
func TestCutOfAClient(t *testing.T) {
	b := newBench()
	known := func(client string) int { return b.Window(&b.d, "con_1", client, b.route).Tokens }
	see := func(client string) {
		for i := range 2 {
			b.Counted(tokens.NewRegistration(b.d.Account, b.d.Name, b.d.UpdatedAt), "con_1", client, 2050,
				tokens.Evidence{TooLow: 9000 + 100*i})
		}
	}
	if see("a"); known("a") != 4096 || known("b") != 0 || known("") != 4096 {
		t.Errorf("after one client: %d, %d, %d", known("a"), known("b"), known(""))
	}
	if see("a"); known("b") != 0 {
		t.Errorf("after one client again: %d", known("b"))
	}
	if see("b"); known("a") != 4096 || known("c") != 4096 {
		t.Errorf("after two clients: %d, %d", known("a"), known("c"))
	}
	b = newBench()
	b.route.Window = 32768
	if see("a"); b.State(&b.d, "con_1", b.route).State != health.Available {
		t.Error("a server that lists its window is said to cut prompts")
	}
}
