package serve

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/store"
)

// Requests of the console and of keys share the limits of their account, and the texts of refusals.
func TestConsoleSharesLimits(t *testing.T) {
	g := newGateway(t, 64<<20)
	if settle, err := g.backend.AdmitConsole(t.Context(), store.DefaultAccount, "", "m", limits.Cost{}); err != nil {
		t.Errorf("without limits: %v", err)
	} else {
		settle(limits.Used{Requests: 1})
	}
	_, err := g.backend.Store.SetAccount(t.Context(), store.DefaultAccount,
		func(a *store.Account) { a.Limits.TokensPerDay = 100 })
	if err != nil {
		t.Fatal(err)
	}
	settle, err := g.backend.AdmitConsole(t.Context(), store.DefaultAccount, "", "m", limits.Cost{Input: 1, Output: 9})
	if err != nil {
		t.Fatal(err)
	}
	settle(limits.Used{Requests: 1, Tokens: 100})
	_, err = g.backend.AdmitConsole(t.Context(), store.DefaultAccount, "", "m", limits.Cost{Input: 1, Output: 9})
	ofConsole, ok := errors.AsType[*dialect.Error](err)
	if !ok || !strings.HasPrefix(ofConsole.Message,
		"Quota used up. Limit 100 tokens per day for this account; used 100.") {
		t.Errorf("the console: %v", err)
	}
	ex := NewExchange()
	ex.Account, ex.Key, ex.backend = store.DefaultAccount, g.key, g.backend
	_, err = g.router.limit(t.Context(),
		&modelRequest{exchange: ex, call: new(dialect.ChatRequest), answer: newAnswer(httptest.NewRecorder())})
	if ofKey, ok := errors.AsType[*dialect.Error](err); !ok || ofConsole == nil || ofKey.Message != ofConsole.Message {
		t.Errorf("a key: %v", err)
	}
}

// A request of the console with a key counts for the key, and takes a turn in the queue of its model.
func TestConsoleWithAKey(t *testing.T) {
	g := newGateway(t, 64<<20)
	st := g.backend.Store
	con, _, err := st.CreateConnector(t.Context(), store.DefaultAccount, "other-box")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.SetDeployment(t.Context(), store.Deployment{
		Account: store.DefaultAccount, Name: "one", Connectors: []string{con.ID}, MaxConcurrency: 1,
	}); err != nil {
		t.Fatal(err)
	}
	k, _, err := st.CreateKey(t.Context(), store.DefaultAccount,
		store.KeyFields{Name: "limited", Scope: "*", Limits: limits.UsageLimits{TokensPerDay: 100}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.SetAccount(t.Context(), store.DefaultAccount, func(a *store.Account) {
		a.Limits.TokensPerDay, a.Limits.Concurrency = 1000, 2
	}); err != nil {
		t.Fatal(err)
	}
	admit := func(ctx context.Context, key string) (func(limits.Used), error) {
		return g.backend.AdmitConsole(ctx, store.DefaultAccount, key, "one", limits.Cost{Input: 1, Output: 9})
	}
	settle, err := admit(t.Context(), k.ID)
	if err != nil {
		t.Fatal(err)
	}
	left, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := admit(left, k.ID); err == nil {
		t.Error("two requests run at a time")
	}
	if past, err := admit(t.Context(), ""); err != nil {
		t.Errorf("without a key: %v", err)
	} else {
		past(limits.Used{})
	}
	settle(limits.Used{Requests: 1, Tokens: 100})
	used, err := g.backend.Limiter.Usage(t.Context(), store.DefaultAccount, k.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, state := range used.States { // the request that left and the one without a key used nothing
		if state.Limit == limits.TokensPerDay && state.Used != 100 || state.Limit == limits.Concurrency && state.Used != 0 {
			t.Errorf("%+v", state)
		}
	}
	_, err = admit(t.Context(), k.ID)
	if refused, ok := errors.AsType[*dialect.Error](err); !ok ||
		!strings.HasPrefix(refused.Message, "Quota used up. Limit 100 tokens per day for this key; used 100.") {
		t.Errorf("above the quota: %v", err)
	}
}
