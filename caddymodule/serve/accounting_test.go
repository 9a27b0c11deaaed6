package serve

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/store"
)

// The time of all attempts counts.
func TestBusyTimeOfAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a attempts
		for range 2 {
			a.begin(new(dialect.Segments), time.Now())
			time.Sleep(time.Second)
			a.end()
		}
		if a.busy != 2*time.Second {
			t.Errorf("two attempts of a second took %v", a.busy)
		}
	})
}

// The time to the first token and the speed are those of the model: without waiting, and without earlier attempts.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, arrived := attempts{}, time.Now()
		time.Sleep(time.Minute) // in the queue
		a.begin(new(dialect.Segments), arrived)
		time.Sleep(time.Second)
		a.refuse()
		a.begin(new(dialect.Segments), arrived)
		time.Sleep(2 * time.Second)
		e := Ending{First: time.Now()}
		time.Sleep(5 * time.Second)
		a.end()
		time.Sleep(time.Hour) // for the usage and a verdict
		for tokens, want := range map[int64]float64{0: 0, 1: 0, 2: .2, 101: 20} {
			e.TokensPerSecond = 0
			if a.setSpeed(&e, tokens); e.FirstToken != 2*time.Second || e.TokensPerSecond != want {
				t.Errorf("%d tokens: %v, %v tokens/s, not 2s, %v", tokens, e.FirstToken, e.TokensPerSecond, want)
			}
		}
		e.First = time.Now() // the answer waited for a verdict
		e.TokensPerSecond = 0
		if a.setSpeed(&e, 101); e.TokensPerSecond != 0 {
			t.Errorf("an answer that came at once has %v tokens/s", e.TokensPerSecond)
		}
		whole := Ending{}
		if a.setSpeed(&whole, 101); whole != (Ending{}) {
			t.Errorf("an answer that is not a stream has %+v", whole)
		}
	})
}

// Each request is recorded, so recording must be cheap.
func TestRecordAllocates(t *testing.T) {
	g := newGateway(t, 64<<20)
	g.Translator.Observer = silent{}
	g.backend.Store.Touch(g.key)
	c := g.request(&Exchange{
		RequestID: "req_1", Start: time.Now(),
		authenticated: authenticated{backend: g.backend, Account: store.DefaultAccount, Key: g.key},
		translated:    translated{Deployment: "m"},
	})
	e := Ending{Status: 200, Logged: 200, First: c.exchange.Start}
	if n := testing.AllocsPerRun(1000, func() { c.finish(e) }); n > 3 {
		t.Errorf("%v allocations per request, want 3 at most", n)
	}
}

// silent is an Observer that does nothing.
type silent struct{ Observer }

func (silent) Ended(*Exchange, Ending)          {}
func (silent) Counted(*Exchange, dialect.Usage) {}

// A prompt for estimates: 2,000 words, and as many tokens.
var words = strings.Repeat("some words ", 1000)

// Every request that a model has processed has tokens, even if the stream was cut, the client left or
// the model server counts nothing. All other requests have none.
func TestNothingIsFree(t *testing.T) {
	const (
		head   = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word\"}}]}\n\n"
		end    = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
		counts = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}\n\n"
		zeros  = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":0,\"completion_tokens\":0}}\n\n"
	)
	chat := `{"model":"m","stream":true,"messages":[{"role":"user","content":"` + words + `"}]}`
	stream := func(text string) func(*http.Request) *http.Response {
		return func(*http.Request) *http.Response { return respond(200, "text/event-stream", text) }
	}
	for _, c := range []struct {
		name, path, body string
		answer           func(*http.Request) *http.Response
		unread           bool // the tunnel does not read the prompt
		input, output    int  // at least; input 0: no tokens, 7: as the server counts
	}{
		{
			name: "counted", answer: stream(head + head + end[:len(end)-len("data: [DONE]\n\n")] + counts + "data: [DONE]\n\n"),
			input: 7, output: 3,
		},
		{name: "not counted", answer: stream(strings.Repeat(head, 40) + end), input: 2000, output: 40},
		{name: "counted as nothing", answer: stream(strings.Repeat(head, 40) + zeros + end), input: 2000, output: 40},
		{name: "cut", answer: stream(strings.Repeat(head, 40)), input: 2000, output: 40},
		{name: "cut before the first token", answer: stream(""), input: 2000},
		{name: "no answer", answer: func(*http.Request) *http.Response {
			return respond(500, "application/json", `{"error":"crash"}`)
		}, input: 2000},
		{
			name:   "no answer, prompt not sent",
			answer: func(*http.Request) *http.Response { return respond(500, "application/json", `{}`) }, unread: true,
		},
		{name: "refused", answer: func(*http.Request) *http.Response { return respond(400, "application/json", `{}`) }},
		{name: "unknown model", body: `{"model":"none","messages":[{"role":"user","content":"` + words + `"}]}`},
		{
			name: "embeddings", path: "/v1/embeddings", body: `{"model":"m-embed","input":"` + words + `"}`, input: 2500,
			answer: func(*http.Request) *http.Response {
				return respond(200, "application/json", `{"data":[{"embedding":[1]}]}`)
			},
		},
		{
			name: "completions", path: "/v1/completions", body: `{"model":"m","prompt":"` + words + `"}`, input: 2500,
			output: 500,
			answer: func(*http.Request) *http.Response {
				return respond(200, "application/json", `{"choices":[{"text":"`+words[:2000]+`","finish_reason":"stop"}]}`)
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGateway(t, 64<<20)
				embeds, _ := g.backend.Store.Deployment(store.DefaultAccount, "m")
				embeds.Name, embeds.Kind = "m-embed", store.EmbeddingsModel
				if _, err := g.backend.Store.SetDeployment(t.Context(), embeds); err != nil {
					t.Fatal(err)
				}
				g.answer = func(r *http.Request) *http.Response {
					if !c.unread {
						drainAll(t, r)
					}
					return c.answer(r)
				}
				g.post(cmp.Or(c.path, "/v1/chat/completions"), cmp.Or(c.body, chat))
				synctest.Wait()
				got := g.backend.Activity.Recent(store.DefaultAccount)[0]
				estimated := c.input > 7
				if got.Estimated != estimated || got.InputTokens < c.input || got.InputTokens > c.input*3/2 ||
					got.OutputTokens < c.output || got.OutputTokens > c.output*3/2 {
					t.Errorf("recorded %+v", got)
				}
				if counted, want := g.counts.last(), fmt.Sprintf("counted: {PromptTokens:%d CompletionTokens:%d", got.InputTokens,
					got.OutputTokens); !strings.HasPrefix(counted, want) {
					t.Errorf("%s, not %s", counted, want)
				}
			})
		})
	}
}

// A client that leaves has used the model. Its request is recorded before the upstream's answer ends.
func TestLeavingIsNotFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, 64<<20)
		ctx, leave := context.WithCancel(t.Context())
		var body *leaving
		g.answer = func(r *http.Request) *http.Response {
			drainAll(t, r)
			body = &leaving{ctx: ctx, leave: leave, left: 40}
			response := respond(200, "text/event-stream", "")
			response.Body = body
			return response
		}
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/chat/completions",
			strings.NewReader(`{"model":"m","stream":true,"messages":[{"role":"user","content":"`+words+`"}]}`))
		g.send(httptest.NewRecorder(), r)
		synctest.Wait()
		got := g.backend.Activity.Recent(store.DefaultAccount)[0]
		if got.Status != activity.StatusClientGone || got.ErrorClass != activity.CallerError || !got.Estimated ||
			got.InputTokens < 2000 || got.InputTokens > 2500 || got.OutputTokens != 40 {
			t.Errorf("recorded %+v", got)
		}
		if !body.closed || body.after > 1 {
			t.Errorf("closed: %v, %d reads after the client left", body.closed, body.after)
		}
	})
}

// leaving is an answer during which the client leaves.
type leaving struct {
	ctx         context.Context
	leave       func()
	left, after int // pieces until the client leaves; reads after
	closed      bool
}

func (e *leaving) Read(p []byte) (int, error) {
	if e.left == 0 {
		e.leave()
		e.after++
		return 0, context.Cause(e.ctx)
	}
	e.left--
	return copy(p, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word\"}}]}\n\n"), nil
}

func (e *leaving) Close() error {
	e.closed = true
	return nil
}

// respond returns an answer of the upstream.
func respond(status int, mediaType, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {mediaType}},
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: -1,
	}
}

// drainAll reads a request, as the tunnel does.
func drainAll(t *testing.T, r *http.Request) {
	t.Helper()
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		t.Error(err)
	}
}

// An account with the id of a removed one begins with its own usage.
func TestAccountAgain(t *testing.T) {
	g := newGateway(t, 64<<20)
	st := g.backend.Store
	for range 2 {
		if _, err := st.CreateAccount(t.Context(), stranger); err != nil {
			t.Fatal(err)
		}
		if _, err := st.SetAccount(t.Context(), stranger,
			func(a *store.Account) { a.Limits.TokensPerDay = 100 }); err != nil {
			t.Fatal(err)
		}
		permit, err := g.backend.Limiter.Enter(t.Context(),
			limits.Request{Account: stranger, Cost: limits.Cost{Input: 1, Output: 9}})
		if err != nil {
			t.Fatal(err)
		}
		permit.Settle(limits.Used{Requests: 1, Tokens: 100})
		if err := st.RemoveAccount(t.Context(), stranger); err != nil {
			t.Fatal(err)
		}
	}
}

// Keys without limits cause no allocations for limits, however many groups they count for.
func TestUnlimitedAllocates(t *testing.T) {
	g := newGateway(t, 64<<20)
	ex := NewExchange()
	ex.Account, ex.Key, ex.backend = store.DefaultAccount, g.key, g.backend
	m := &modelRequest{exchange: ex}
	enter := func(groups string) {
		t.Helper()
		if n := testing.AllocsPerRun(1000, func() {
			if _, err := g.router.enterLimits(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", groups, n)
		}
	}
	enter("no groups")
	st := g.backend.Store
	user, err := st.CreateUser(t.Context(), store.DefaultAccount, "anna", "", store.RoleMember)
	for i := range 5 {
		fields := store.GroupFields{Name: fmt.Sprint(i), Scope: "*", Members: []string{user.ID}}
		_, e := st.CreateGroup(t.Context(), store.DefaultAccount, fields)
		err = cmp.Or(err, e)
	}
	_, e := st.EditKey(t.Context(), store.DefaultAccount, g.key.ID(), func(k *store.Key) error {
		k.Owner = user.ID
		return nil
	})
	err = cmp.Or(err, e)
	if n := len(st.GroupsOf(g.key.ID())); n != 5 || err != nil {
		t.Fatal(n, err)
	}
	enter("five groups")
}
