// Package issuertest is an OpenID Connect issuer for tests, which can be hostile. It signs in everyone who asks.
package issuertest

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/coreos/go-oidc/v3/oidc/oidctest"
)

// ClientID is the client of the issuer.
const ClientID = "postern"

// Keys returns the keys of the issuers.
var Keys = sync.OnceValue(func() (keys [2]*rsa.PrivateKey) {
	for i := range keys {
		keys[i], _ = rsa.GenerateKey(rand.Reader, 2048) // fails only without entropy
	}
	return keys
})

// Issuer is an issuer. Its fields may be changed between requests.
type Issuer struct {
	*httptest.Server
	Claims map[string]any // of the next ID token, in addition to the usual ones; nil removes one
	Header http.Header    // of the next answer with a token
	Sign   func(claims string) string
	Got    string // by the token endpoint: the header Authorization, and the form
	Nonce  string // of ID tokens for codes that are not from the issuer

	t        testing.TB
	server   oidctest.Server
	handlers sync.Map // path → http.HandlerFunc
	asked    sync.Map // path → *atomic.Int64
	nonces   sync.Map // code → nonce
}

// New returns an issuer with the first key.
func New(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{t: t}
	i.Server = httptest.NewServer(i)
	t.Cleanup(i.Close)
	i.server.SetIssuer(i.URL)
	i.UseKey(0)
	return i
}

// UseKey replaces the issuer's only key.
func (i *Issuer) UseKey(n int) {
	id := fmt.Sprint("key ", n)
	i.server.PublicKeys = []oidctest.PublicKey{{PublicKey: Keys()[n].Public(), KeyID: id, Algorithm: oidc.RS256}}
	i.Sign = func(claims string) string { return oidctest.SignIDToken(Keys()[n], id, oidc.RS256, claims) }
}

// Asked returns how often a path was requested.
func (i *Issuer) Asked(path string) int { return int(i.count(path).Load()) }

func (i *Issuer) count(path string) *atomic.Int64 {
	n, _ := i.asked.LoadOrStore(path, new(atomic.Int64))
	return n.(*atomic.Int64)
}

// Handle replaces an endpoint; nil restores it.
func (i *Issuer) Handle(path string, h http.HandlerFunc) {
	if i.handlers.Delete(path); h != nil {
		i.handlers.Store(path, h)
	}
}

// Discovery changes members of the discovery document.
func (i *Issuer) Discovery(more map[string]any) {
	i.Handle("/.well-known/openid-configuration", func(w http.ResponseWriter, r *http.Request) {
		recorded := httptest.NewRecorder()
		i.server.ServeHTTP(recorded, r)
		var document map[string]any
		if err := json.Unmarshal(recorded.Body.Bytes(), &document); err != nil {
			i.t.Error(err)
		}
		maps.Copy(document, more)
		_ = json.NewEncoder(w).Encode(document)
	})
}

// ServeHTTP implements [http.Handler].
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := i.count(r.URL.Path).Add(1)
	if handler, ok := i.handlers.Load(r.URL.Path); ok {
		handler.(http.HandlerFunc)(w, r)
		return
	}
	switch r.URL.Path {
	case "/auth":
		q, code := r.URL.Query(), fmt.Sprint("code-", n)
		i.nonces.Store(code, q.Get("nonce"))
		answer := url.Values{"state": {q.Get("state")}, "code": {code}}
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+answer.Encode(), http.StatusFound)
	case "/token":
		i.serveToken(w, r)
	default:
		i.server.ServeHTTP(w, r)
	}
}

func (i *Issuer) serveToken(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	i.Got = r.Header.Get("Authorization") + " " + r.PostForm.Encode()
	w.Header().Set("Content-Type", "application/json")
	maps.Copy(w.Header(), i.Header)
	nonce, ok := i.nonces.LoadAndDelete(r.PostForm.Get("code"))
	if !ok {
		nonce = i.Nonce
	}
	claims := map[string]any{
		"iss": i.URL, "aud": ClientID, "sub": "7", "nonce": nonce, "exp": time.Now().Add(time.Hour).Unix(),
		"iat": time.Now().Unix(), "preferred_username": "ann", "groups": []string{"team"},
	}
	for name, value := range i.Claims {
		if claims[name] = value; value == nil {
			delete(claims, name)
		}
	}
	text, err := json.Marshal(claims)
	if err != nil {
		i.t.Error(err)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"access_token": "access", "token_type": "Bearer", "expires_in": 60, "id_token": i.Sign(string(text)),
	})
}
