package oidc

import (
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/issuertest"
)

const clientID = issuertest.ClientID

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fake is an issuer for the tests of this package.
type fake struct {
	*issuertest.Issuer
	t *testing.T
}

func newFake(t *testing.T) *fake { return &fake{issuertest.New(t), t} }

// issuer returns the issuer of a configuration. members defaults to the group team, admins to ml-admins.
func (f *fake) issuer(change func(*Config)) *Issuer {
	f.t.Helper()
	c := Config{
		URL: f.URL, ClientID: clientID, ClientSecret: "s3cret", Admins: []string{"ml-admins"}, Members: []string{"team"},
	}
	if change != nil {
		change(&c)
	}
	must(f.t, c.Complete())
	p := NewProvider(c.URL, slog.New(slog.DiscardHandler))
	f.t.Cleanup(func() { _ = p.Destruct() })
	return &Issuer{Config: c, Provider: p, Redirect: "https://gw.example.com/console/sign-in/oidc/id/callback"}
}

// begin begins a flow.
func (f *fake) begin(i *Issuer, purpose Purpose) (Flow, url.Values) {
	f.t.Helper()
	flow := Flow{Began: time.Now(), Purpose: purpose}
	to, err := i.Begin(&flow)
	must(f.t, err)
	u, err := url.Parse(to)
	must(f.t, err)
	f.Nonce = u.Query().Get("nonce")
	return flow, u.Query()
}

func once() error { return nil }

// answer is the query of a redirect with a code.
func answer(flow Flow) url.Values { return url.Values{"state": {flow.State}, "code": {"code-1"}} }

// signIn makes a whole sign-in.
func (f *fake) signIn(i *Issuer) (Person, error) {
	f.t.Helper()
	flow, _ := f.begin(i, SignIn)
	return i.Finish(f.t.Context(), flow, answer(flow), time.Now(), once)
}

func TestSignIn(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	i := f.issuer(nil)
	flow, sent := f.begin(i, SignIn)
	for name, want := range map[string]string{
		"client_id": clientID, "redirect_uri": i.Redirect, "response_type": "code", "scope": "openid profile email",
		"code_challenge_method": "S256", "state": flow.State, "prompt": "", "max_age": "",
	} {
		if got := sent.Get(name); got != want {
			t.Errorf("%s is %q, not %q", name, got, want)
		}
	}
	p, err := i.Finish(t.Context(), flow, answer(flow), time.Now(), once)
	if err != nil || p.Subject != "7" || p.Name != "ann" || p.Role != store.RoleMember || !p.ConfirmedAt.IsZero() {
		t.Fatalf("%+v, %v", p, err)
	}
	if !strings.HasPrefix(f.Got, "Basic ") || !strings.Contains(f.Got, "code_verifier="+flow.Verifier) ||
		strings.Contains(f.Got, "client_secret") {
		t.Errorf("the token endpoint got %s", f.Got)
	}
	f.Claims = map[string]any{"groups": []string{"team", "ml-admins"}, "auth_time": time.Now().Unix()}
	if p, err := f.signIn(i); err != nil || p.Role != store.RoleAdmin || p.ConfirmedAt.IsZero() {
		t.Errorf("an admin: %+v, %v", p, err)
	}
	if n := f.Asked("/.well-known/openid-configuration"); n != 1 {
		t.Errorf("the discovery document was fetched %d times", n)
	}
}

// The secret goes where the discovery document says, once.
func TestClientAuthentication(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.Discovery(map[string]any{
		"token_endpoint_auth_methods_supported": []string{"client_secret_post"}, "scopes_supported": []string{"groups"},
	})
	i := f.issuer(nil)
	if _, err := f.signIn(i); err != nil || !strings.Contains(f.Got, "client_secret=s3cret") {
		t.Errorf("%v: %s", err, f.Got)
	}
	if _, sent := f.begin(i, SignIn); sent.Get("scope") != "openid profile email groups" {
		t.Errorf("the scopes are %s", sent.Get("scope"))
	}
	public := f.issuer(func(c *Config) { c.ClientSecret = "" })
	if _, err := f.signIn(public); err != nil || !strings.Contains(f.Got, "client_id=postern") {
		t.Errorf("without a secret: %v: %s", err, f.Got)
	}
}

// expectFailure checks the kind of an error, whether it counts as an attempt of the client, and its length.
func expectFailure(t *testing.T, what string, err, kind error, counts bool) *Failure {
	t.Helper()
	f, ok := errors.AsType[*Failure](err)
	switch {
	case !ok:
		t.Errorf("%s: %v is no failure", what, err)
		return &Failure{}
	case f.kind != kind || f.Counts != counts:
		t.Errorf("%s: %v (%v, counts: %v)", what, err, f.kind, f.Counts)
	case len(f.Cause) > 210 || strings.Contains(f.Cause, "\n") || len(f.text) > 1500:
		t.Errorf("%s: %d bytes for the log, %d for the page", what, len(f.Cause), len(f.text))
	}
	return f
}
