package oidc

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

const (
	clientID, clientSecret = "postern", "client-secret-of-the-test"
	password               = "password-at-the-issuer"
)

// provider is an OpenID Connect provider, whose users can have groups.
type provider struct {
	*httptest.Server
	t        *testing.T
	redirect string
	handler  atomic.Pointer[http.Handler] // nil: it is down

	mu     sync.Mutex
	groups map[string][]string // by user
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{t: t, groups: map[string][]string{"ann": {"ml-admins"}, "bob": {"ml-team"}, "eve": {"other"}}}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if handler := p.handler.Load(); handler != nil {
			(*handler).ServeHTTP(w, r)
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(p.Close)
	return p
}

// set gives a user groups.
func (p *provider) set(user string, groups ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.groups[user] = groups
}

// start starts the provider, with new keys, for a client with this redirect address.
func (p *provider) start(redirect string) {
	p.t.Helper()
	p.redirect = redirect
	records := &records{
		Storage: storage.NewStorageWithClients(p, map[string]*storage.Client{
			clientID: storage.WebClient(clientID, clientSecret, redirect),
		}),
		provider: p,
	}
	config := &op.Config{CryptoKeyId: "1", CodeMethodS256: true, DefaultLogoutRedirectURI: "/left"}
	made, err := op.NewProvider(config, records, op.StaticIssuer(p.URL), op.WithAllowInsecure())
	must(p.t, err)
	mux := http.NewServeMux()
	mux.Handle("/", made)
	mux.HandleFunc("/left", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "You have left.") })
	mux.HandleFunc("/favicon.ico", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("GET /login/username", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<!doctype html><title>Issuer</title><h1>Log in to the issuer</h1>
			<form method="post" action="/login/username">
			<input type="hidden" name="id" value="%s"><input name="username"><input name="password" type="password">
			<button>Continue</button></form>`, html.EscapeString(r.FormValue("authRequestID")))
	})
	mux.HandleFunc("POST /login/username", func(w http.ResponseWriter, r *http.Request) {
		id := r.FormValue("id")
		if err := records.CheckUsernamePassword(r.FormValue("username"), r.FormValue("password"), id); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		http.Redirect(w, r, op.AuthCallbackURL(made)(op.ContextWithIssuer(r.Context(), p.URL), id), http.StatusFound)
	})
	var handler http.Handler = mux
	p.handler.Store(&handler)
}

// GetUserByID and the next two methods implement storage.UserStore.
func (p *provider) GetUserByID(id string) *storage.User { return p.GetUserByUsername(id) }

func (p *provider) GetUserByUsername(name string) *storage.User {
	return &storage.User{ID: name, Username: name, Password: password, Email: name + "@example.com", EmailVerified: true}
}

func (p *provider) ExampleClientID() string { return "unused" }

// records adds groups to what userinfo answers. The ID token has only those.
type records struct {
	*storage.Storage
	provider *provider
}

func (r *records) SetUserinfoFromToken(ctx context.Context, u *oidc.UserInfo, token, subject, origin string) error {
	err := r.Storage.SetUserinfoFromToken(ctx, u, token, subject, origin)
	r.provider.mu.Lock()
	defer r.provider.mu.Unlock()
	u.AppendClaims("groups", r.provider.groups[subject])
	return err
}
