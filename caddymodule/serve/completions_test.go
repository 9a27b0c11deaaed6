package serve

import (
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
	"github.com/postern-dev/postern/caddymodule/observed"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/memory"
	"github.com/postern-dev/postern/tests/rig/wait"
	"github.com/postern-dev/postern/tests/storetest"
)

// chatCall is a chat request whose prompt has some 400 tokens by estimate.
func chatCall(t *testing.T) dialect.Call {
	t.Helper()
	body := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("some words ", 200) + `"}]}`
	call, derr := decode(dialect.Operation{Kind: dialect.ChatCompletions, Dialect: dialect.Chat}, []byte(body),
		&dialect.Env{})
	if derr != nil {
		t.Fatal(derr)
	}
	return call
}

// deploy registers the deployment m.
func deploy(t testing.TB, st *store.Store) store.Deployment {
	t.Helper()
	c, _, err := st.CreateConnector(t.Context(), store.DefaultAccount, "box")
	if err != nil {
		t.Fatal(err)
	}
	d, err := st.SetDeployment(t.Context(),
		store.Deployment{Account: store.DefaultAccount, Name: "m", Connectors: []string{c.ID}})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// newTestCompletions returns completions that the test has to close.
func newTestCompletions(t *testing.T, st *store.Store) *completions {
	t.Helper()
	c, err := newCompletions(st, observed.New(time.Now), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// What was learned is in the store after closing, and is loaded from there. The key of signatures
// stays the same.
func TestCompletionsSave(t *testing.T) {
	st := storetest.Open(t, filepath.Join(t.TempDir(), "gateway.db"))
	d := deploy(t, st)
	c := newTestCompletions(t, st)
	call := chatCall(t)
	before := c.calibration.Count(t.Context(), registration(d), "key", call.Prompt())
	m := sample{registration: registration(d), known: true, key: "key", call: call, size: 100}
	m.tokens = int64(before) * 3 / 2
	c.correctEstimates(m)
	c.close()
	saved, ok := st.Calibration(d.Account, d.Name)
	if !ok || saved.Plain < 1.4 || saved.Plain > 1.7 || saved.Tools != 0 {
		t.Errorf("saved %+v, %v", saved, ok)
	}
	next := newTestCompletions(t, st)
	defer next.close()
	if got := next.calibration.Count(t.Context(), registration(d), "key", call.Prompt()); got < before*14/10 {
		t.Errorf("later it counts %d, at first it was %d", got, before)
	}
	if string(next.signatureKey) != string(c.signatureKey) || len(c.signatureKey) == 0 {
		t.Error("the key of signatures has changed")
	}
	// A deployment that is removed is dropped, not saved again.
	next.onChange(store.Change{Kind: store.KindDeployment, Account: d.Account, ID: d.Name, Removed: true})
	if got := next.calibration.Export(); len(got) != 0 {
		t.Errorf("still known: %v", got)
	}
}

// Correcting estimates by a large prompt takes long, and is not done again for fifty times as long. Counts are recorded
// meanwhile.
func TestCountsWithoutCorrections(t *testing.T) {
	st := storetest.New(t)
	d := deploy(t, st)
	c := newTestCompletions(t, st)
	defer c.close()
	for i := range 3 {
		body := `{"model":"m","messages":[{"role":"user","content":"` +
			strings.Repeat("number "+strconv.Itoa(i)+" of some words ", 8_000) + `"}]}`
		call, derr := decode(dialect.Operation{Kind: dialect.ChatCompletions, Dialect: dialect.Chat}, []byte(body),
			&dialect.Env{})
		if derr != nil {
			t.Fatal(derr)
		}
		wait.Until(t, fmt.Sprintf("prompt %d is counted exactly", i), func() bool {
			tokens := int64(45678 + i)
			m := sample{registration: registration(d), known: true, key: "key", call: call, size: int64(len(body))}
			m.tokens = tokens
			c.correctEstimates(m)
			return c.calibration.Count(t.Context(), registration(d), "key", call.Prompt()) == 45678+i
		})
	}
}

// readCall is a chat request that records how often the text of its prompt is read, and lets the test hold it.
type readCall struct {
	dialect.Call
	prompt *tokens.Prompt
	reads  atomic.Int32
}

func (c *readCall) Prompt() *tokens.Prompt { return c.prompt }

// newReadCall returns a call whose text is held until proceed is closed. The first reading is that of its decoding.
func newReadCall(t *testing.T, proceed chan struct{}) *readCall {
	t.Helper()
	c := &readCall{Call: chatCall(t)}
	c.prompt = tokens.NewPrompt(func() (messages, tools []byte) {
		if c.reads.Add(1) > 1 {
			<-proceed
		}
		return c.Call.Prompt().Text()
	})
	return c
}

// One prompt at a time is tokenized to correct estimates, and one that the model server has not counted. Memory is
// reserved for these. The counts of others are recorded at once, and their text is not read.
func TestOnePromptIsTokenized(t *testing.T) {
	st := storetest.New(t)
	d := deploy(t, st)
	for _, n := range []int64{456, 0} {
		c, proceed, budget := newTestCompletions(t, st), make(chan struct{}), memory.NewBudget(10<<20)
		var records atomic.Int32
		for i := range 4 {
			call := newReadCall(t, proceed)
			m := sample{registration: registration(d), known: true, key: strconv.Itoa(i), call: call, size: 1 << 20, tokens: n}
			m.memory = budget.Open("a", "a", "k")
			if i == 0 {
				m.size = 1 << 30
			}
			m.done = func(int, tokens.Doubt) { records.Add(1) }
			before := records.Load()
			c.correctEstimates(m)
			known := n == 0 || c.calibration.Count(t.Context(), m.registration, m.key, chatCall(t).Prompt()) == int(n)
			if held := i == 1; known == (held && n > 0) || records.Load() > before == held {
				t.Errorf("request %d of %d tokens: known %v, %d records", i, n, known, records.Load())
			}
			if i != 1 && call.reads.Load() != 1 {
				t.Errorf("the text of request %d is read %d times", i, call.reads.Load())
			}
		}
		if reserved := budget.Stats().Reserved; reserved != translatedCost<<20 {
			t.Errorf("%d bytes are reserved", reserved)
		}
		close(proceed)
		c.close()
		if reserved := budget.Stats().Reserved; reserved != 0 || records.Load() != 4 {
			t.Errorf("%d bytes are reserved, %d records", reserved, records.Load())
		}
	}
}

// After the end, prompts are counted by their size, and the counts of a model server are recorded.
func TestCountedAfterTheEnd(t *testing.T) {
	st := storetest.New(t)
	d := deploy(t, st)
	c := newTestCompletions(t, st)
	c.close()
	m := sample{registration: registration(d), known: true, key: "key", call: chatCall(t), size: 400}
	for _, n := range []int64{0, 456} {
		recorded := 0
		m.tokens, m.done = n, func(n int, _ tokens.Doubt) { recorded = n }
		if c.correctEstimates(m); recorded != map[int64]int{0: 400 / dialect.BytesPerToken, 456: 456}[n] {
			t.Errorf("a count of %d after the end is recorded as %d", n, recorded)
		}
	}
}

// The prompts of a key and their token counts do not change the counts of another key: neither of a
// whole prompt nor of its beginning.
func TestKeysShareNoCounts(t *testing.T) {
	g := newGateway(t, 64<<20)
	const tokens = 17 // by the model server, differently from the estimate
	g.answer = func(*http.Request) *http.Response {
		answer := strings.Replace(completionOf("hi"), `"prompt_tokens":1`, `"prompt_tokens":`+strconv.Itoa(tokens), 1)
		return upstreamAnswer("application/json", strings.NewReader(answer), -1)
	}
	const (
		question = `{"role":"user","content":"the merger is planned for the 17th"}`
		answer   = `{"role":"assistant","content":"hi"}`
	)
	count := func(messages string) string {
		return g.post("/v1/messages/count_tokens", `{"model":"m","messages":[`+messages+`]}`).Body.String()
	}
	own := g.secret
	_, other := g.newKey(t, store.DefaultAccount, "*")
	g.secret = other
	whole, longer := count(question), count(question+","+answer+","+question)
	g.secret = own
	exact := fmt.Sprintf(`{"input_tokens":%d}`+"\n", tokens)
	if whole == exact {
		t.Fatal("the estimate is the model server's count")
	}
	wait.Until(t, "the key's own prompt is counted exactly", func() bool {
		g.post("/v1/messages", `{"model":"m","max_tokens":9,"messages":[`+question+`]}`) // a sample may be dropped
		return count(question) == exact
	})
	if got := count(question + "," + answer + "," + question); got == longer {
		t.Errorf("the key's own longer prompt: %s", got)
	}
	g.secret = other
	if got := count(question); got != whole {
		t.Errorf("another key counts %s, before %s", got, whole)
	}
	if got := count(question + "," + answer + "," + question); got != longer {
		t.Errorf("another key's longer prompt: %s, before %s", got, longer)
	}
}
