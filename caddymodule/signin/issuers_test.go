package signin

import (
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"testing"

	"github.com/postern-dev/postern/caddymodule/signin/oidc"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/issuertest"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// Any gateway of the store takes the answer of a flow, and one of them does.
func TestFlowsOfSeveralGateways(t *testing.T) {
	t.Parallel()
	fake := issuertest.New(t)
	c := oidc.Config{URL: fake.URL, ClientID: issuertest.ClientID, Members: []string{"team"}}
	must(t, c.Complete())
	desks := newDesks(t, "a", "b")
	var issuers []*oidc.Issuer
	for _, d := range desks {
		p := oidc.NewProvider(c.URL, slog.New(slog.DiscardHandler))
		t.Cleanup(func() { _ = p.Destruct() })
		issuers = append(issuers, &oidc.Issuer{Config: c, Provider: p, Redirect: "https://gw.example.com/callback"})
		d.store.SetSignInPolicy(store.SignInPolicy{Issuers: []string{c.URL}})
	}
	to, state, sealed, err := desks[0].BeginIssuer(issuers[0], oidc.Flow{Purpose: oidc.SignIn}, home)
	must(t, err)
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Get(to)
	must(t, err)
	_ = answer.Body.Close()
	back, err := url.Parse(answer.Header.Get("Location"))
	must(t, err)
	finish := func(n int, sealed string) error {
		a := Attempt{Address: elsewhere, UserAgent: "Firefox"}
		_, err := desks[n].FinishIssuer(t.Context(), issuers[n], a, store.Session{}, sealed, back.Query())
		return err
	}
	if err := finish(1, sealed[1:]); !errors.Is(err, oidc.ErrAttempt) {
		t.Errorf("a cut flow: %v", err)
	}
	ceremony, err := desks[0].sealer.seal("ceremony", map[string]string{"s": state})
	must(t, err)
	if err := finish(1, ceremony); !errors.Is(err, oidc.ErrAttempt) {
		t.Errorf("data of another purpose: %v", err)
	}
	must(t, finish(1, sealed))
	wait.Until(t, "both know the user", func() bool { return desks[0].store.UserCount() == 1 })
	for n := range desks {
		if err := finish(n, sealed); !errors.Is(err, oidc.ErrAttempt) {
			t.Errorf("the answer again, at %d: %v", n, err)
		}
	}
	ann, _ := desks[0].store.FindUser("ann")
	if n := len(desks[0].store.Sessions(ann.ID)); n != 1 || fake.Asked("/token") != 1 {
		t.Errorf("%d sessions, %d exchanges", n, fake.Asked("/token"))
	}
}
