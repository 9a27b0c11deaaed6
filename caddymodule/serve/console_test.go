package serve

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/store"
)

// asked asks the deployment m, and returns the error of the answer.
func (g *testGateway) asked(ctx context.Context, change func(q *Question)) (Asked, error) {
	d, _ := g.backend.Store.Deployment(store.DefaultAccount, "m")
	q := &Question{
		Name: activity.Playground, Deployment: d, Owner: "usr_ann",
		Operation: dialect.Operation{Kind: dialect.ChatCompletions, Dialect: dialect.Chat},
		Body:      []byte(`{"model":"m","messages":[{"role":"user","content":"Hi"}],"max_tokens":9}`),
	}
	if change != nil {
		change(q)
	}
	return g.Ask(ctx, q, httptest.NewRecorder())
}

// counting answers each request, and counts 50 tokens twice.
func counting(*http.Request) *http.Response {
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: -1,
		Body: io.NopCloser(strings.NewReader(`{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}],` +
			`"usage":{"prompt_tokens":50,"completion_tokens":50}}`)),
	}
}

// setLimits sets the limits of the account.
func (g *testGateway) setLimits(t *testing.T, l limits.UsageLimits) {
	t.Helper()
	if _, err := g.backend.Store.SetAccount(t.Context(), store.DefaultAccount,
		func(a *store.Account) { a.Limits.UsageLimits = l }); err != nil {
		t.Fatal(err)
	}
}

// Requests of the console and of keys share the limits of their account, and the texts of refusals. Those that the
// gateway sends by itself count for none.
func TestConsoleSharesLimits(t *testing.T) {
	g := newGateway(t, 64<<20)
	g.answer = counting
	g.setLimits(t, limits.UsageLimits{TokensPerDay: 100})
	asked, err := g.asked(t.Context(), nil)
	if d, _ := g.backend.Store.Deployment(store.DefaultAccount, "m"); err != nil || asked.Sent.IsZero() ||
		asked.Usage.CompletionTokens != 50 || asked.Connector != d.Connectors[0] {
		t.Errorf("%+v, %v", asked, err)
	}
	const words = "Quota used up. This account is limited to 100 tokens per day and has used 100."
	if _, err = g.asked(t.Context(), nil); err == nil || !strings.HasPrefix(err.Error(), words) {
		t.Errorf("the console: %v", err)
	}
	if w := g.post("/v1/chat/completions", `{"model":"m","messages":[]}`); !strings.Contains(w.Body.String(), words) {
		t.Errorf("a key: %s", w.Body)
	}
	idle := func(q *Question) { q.Idle, q.Connector = true, q.Deployment.Connectors[0] }
	if _, err = g.asked(t.Context(), idle); err != nil {
		t.Errorf("the gateway: %v", err)
	}
	recent := g.backend.Activity.Recent(store.DefaultAccount)
	if !slices.ContainsFunc(recent, func(r activity.Request) bool {
		return r.Operation == activity.Playground && r.KeyID == "" && r.FromConsole()
	}) {
		t.Errorf("%+v", recent)
	}
	g.returned(t)
}

// A request of the console with a key counts for the key, and needs its scope.
func TestConsoleWithAKey(t *testing.T) {
	g := newGateway(t, 64<<20)
	g.answer = counting
	st := g.backend.Store
	with := func(fields store.KeyFields) (q func(*Question), id string) {
		k, _, err := st.CreateKey(t.Context(), store.DefaultAccount, fields)
		if err != nil {
			t.Fatal(err)
		}
		return func(q *Question) { q.Key, _ = st.Credential(store.DefaultAccount, k.ID) }, k.ID
	}
	limited, id := with(store.KeyFields{Name: "limited", Scope: "*", Limits: limits.UsageLimits{TokensPerDay: 100}})
	if _, err := g.asked(t.Context(), limited); err != nil {
		t.Fatal(err)
	}
	if recent := g.backend.Activity.Recent(store.DefaultAccount); recent[0].KeyID != id || recent[0].KeyName != "limited" {
		t.Errorf("%+v", recent[0])
	}
	const words = "Quota used up. This key is limited to 100 tokens per day and has used 100."
	if _, err := g.asked(t.Context(), limited); err == nil || !strings.HasPrefix(err.Error(), words) {
		t.Errorf("above the quota: %v", err)
	}
	if _, err := g.asked(t.Context(), nil); err != nil {
		t.Errorf("without a key: %v", err)
	}
	narrow, _ := with(store.KeyFields{Name: "narrow", Scope: "other"})
	if _, err := g.asked(t.Context(), narrow); err == nil || !strings.Contains(err.Error(), "`m` does not exist") {
		t.Errorf("out of scope: %v", err)
	}
}

// Requests of the console wait for a place as those of keys do.
func TestConsoleWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, 64<<20)
		first, sent := make(chan struct{}), 0
		g.answer = func(r *http.Request) *http.Response {
			if sent++; sent == 1 {
				<-first
			}
			return counting(r)
		}
		d, _ := g.backend.Store.Deployment(store.DefaultAccount, "m")
		d.MaxConcurrency = 1
		if _, err := g.backend.Store.SetDeployment(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 2)
		for _, change := range []func(*Question){nil, func(q *Question) { q.Measures = true }} {
			go func() {
				_, err := g.asked(t.Context(), change)
				done <- err
			}()
			synctest.Wait()
		}
		if running, waiting := g.backend.Turns.Load(store.DefaultAccount, "m"); running != 1 || waiting != 1 || sent != 1 {
			t.Errorf("%d run, %d wait, %d were sent", running, waiting, sent)
		}
		close(first)
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// A prompt that measures a window is sent although it is longer than the known window, and shows nothing about other
// prompts.
func TestMeasuringPrompt(t *testing.T) {
	g := newGateway(t, 64<<20)
	g.answer, g.route.Window = counting, 1000
	long := func(q *Question) {
		q.Body = []byte(`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("a ", 10_000) + `"}]}`)
	}
	if _, err := g.asked(t.Context(), long); err == nil {
		t.Error("a longer prompt was sent")
	}
	var done []error
	if _, err := g.asked(t.Context(), func(q *Question) {
		long(q)
		q.Measures = true
		q.Done = func(err error) {
			done = append(done, err)
			if n := len(g.backend.Activity.Recent(store.DefaultAccount)); n != 1 {
				t.Errorf("%d requests are recorded before Done", n)
			}
		}
	}); err != nil || len(done) != 1 || done[0] != nil {
		t.Errorf("%v, done: %v", err, done)
	}
	if recent := g.backend.Activity.Recent(store.DefaultAccount); len(recent) != 2 || recent[0].Dropped != "" {
		t.Errorf("%+v", recent)
	}
}

// A user who leaves ends the request, with the reason. A crash is an error.
func TestConsoleFails(t *testing.T) {
	g := newGateway(t, 64<<20)
	ctx, leave := context.WithCancelCause(t.Context())
	late := &dialect.Error{Kind: dialect.KindTimeout, Message: "late"}
	g.answer = func(r *http.Request) *http.Response {
		leave(late)
		broken := counting(r)
		broken.Body = io.NopCloser(iotest.ErrReader(context.Canceled))
		return broken
	}
	if _, err := g.asked(ctx, nil); err != error(late) {
		t.Errorf("%v, want %v", err, late)
	}
	g.answer = func(*http.Request) *http.Response { panic(prompt) }
	if _, err := g.asked(t.Context(), nil); err != error(errCrashed) {
		t.Errorf("a crash: %v", err)
	}
	g.returned(t)
}
