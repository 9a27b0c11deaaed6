package oidc

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/coreos/go-oidc/v3/oidc/oidctest"

	"github.com/postern-dev/postern/caddymodule/store"
)

const clientID = "postern"

var signingKeys = sync.OnceValue(func() (keys [2]*rsa.PrivateKey) {
	for i := range keys {
		keys[i], _ = rsa.GenerateKey(rand.Reader, 2048)
	}
	return keys
})

// fake is an issuer that can be hostile: handlers replaces its endpoints.
type fake struct {
	*httptest.Server
	t        *testing.T
	oidctest oidctest.Server
	handlers sync.Map       // path → http.HandlerFunc
	claims   map[string]any // of the next ID token, in addition to the usual ones; nil removes one
	header   http.Header    // of the token answer
	sign     func(claims string) string
	key      int
	asked    sync.Map // path → *atomic.Int64
	secrets  string   // what the token endpoint received
	challenge,
	nonce string // of the last Begin
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{t: t}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	f.oidctest.SetIssuer(f.URL)
	f.useKey(0)
	return f
}

// useKey replaces the issuer's only key.
func (f *fake) useKey(i int) {
	id := fmt.Sprint("key ", i)
	f.key = i
	f.oidctest.PublicKeys = []oidctest.PublicKey{
		{PublicKey: signingKeys()[i].Public(), KeyID: id, Algorithm: oidc.RS256},
	}
	f.sign = func(claims string) string { return oidctest.SignIDToken(signingKeys()[i], id, oidc.RS256, claims) }
}

func (f *fake) count(path string) *atomic.Int64 {
	n, _ := f.asked.LoadOrStore(path, new(atomic.Int64))
	return n.(*atomic.Int64)
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.count(r.URL.Path).Add(1)
	if handler, ok := f.handlers.Load(r.URL.Path); ok {
		handler.(http.HandlerFunc)(w, r)
		return
	}
	if r.URL.Path != "/token" {
		f.oidctest.ServeHTTP(w, r)
		return
	}
	_ = r.ParseForm()
	f.secrets = r.Header.Get("Authorization") + " " + r.PostForm.Encode()
	maps.Copy(w.Header(), f.header)
	w.Header().Set("Content-Type", "application/json")
	claims := map[string]any{
		"iss": f.URL, "aud": clientID, "sub": "7", "nonce": f.nonce, "exp": time.Now().Add(time.Hour).Unix(),
		"iat": time.Now().Unix(), "preferred_username": "ann", "groups": []string{"team"},
	}
	for name, value := range f.claims {
		if claims[name] = value; value == nil {
			delete(claims, name)
		}
	}
	text, err := json.Marshal(claims)
	must(f.t, err)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"access_token": "access", "token_type": "Bearer", "expires_in": 60, "id_token": f.sign(string(text)),
	})
}

// handle replaces an endpoint.
func (f *fake) handle(path string, h http.HandlerFunc) { f.handlers.Store(path, h) }

// discovery adds members to the discovery document.
func (f *fake) discovery(more map[string]any) {
	f.handle("/.well-known/openid-configuration", func(w http.ResponseWriter, r *http.Request) {
		recorded := httptest.NewRecorder()
		f.oidctest.ServeHTTP(recorded, r)
		var document map[string]any
		must(f.t, json.Unmarshal(recorded.Body.Bytes(), &document))
		maps.Copy(document, more)
		_ = json.NewEncoder(w).Encode(document)
	})
}

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
	f.nonce = u.Query().Get("nonce")
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
	if !strings.HasPrefix(f.secrets, "Basic ") || !strings.Contains(f.secrets, "code_verifier="+flow.Verifier) ||
		strings.Contains(f.secrets, "client_secret") {
		t.Errorf("the token endpoint got %s", f.secrets)
	}
	f.claims = map[string]any{"groups": []string{"team", "ml-admins"}, "auth_time": time.Now().Unix()}
	if p, err := f.signIn(i); err != nil || p.Role != store.RoleAdmin || p.ConfirmedAt.IsZero() {
		t.Errorf("an admin: %+v, %v", p, err)
	}
	if n := f.count("/.well-known/openid-configuration").Load(); n != 1 {
		t.Errorf("the discovery document was fetched %d times", n)
	}
}

// The secret goes where the discovery document says, once.
func TestClientAuthentication(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.discovery(map[string]any{
		"token_endpoint_auth_methods_supported": []string{"client_secret_post"}, "scopes_supported": []string{"groups"},
	})
	i := f.issuer(nil)
	if _, err := f.signIn(i); err != nil || !strings.Contains(f.secrets, "client_secret=s3cret") {
		t.Errorf("%v: %s", err, f.secrets)
	}
	if _, sent := f.begin(i, SignIn); sent.Get("scope") != "openid profile email groups" {
		t.Errorf("the scopes are %s", sent.Get("scope"))
	}
	public := f.issuer(func(c *Config) { c.ClientSecret = "" })
	if _, err := f.signIn(public); err != nil || !strings.Contains(f.secrets, "client_id=postern") {
		t.Errorf("without a secret: %v: %s", err, f.secrets)
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
