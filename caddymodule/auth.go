package caddymodule

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/store"
)

func init() {
	caddy.RegisterModule(Auth{})
}

// Auth checks API keys, before a byte of the request's body is read. It takes
// `Authorization: Bearer sk-svc-…`, `x-api-key: sk-svc-…` or `api-key: sk-svc-…`
// (the first of these wins), answers 401 in the dialect of the path, and cuts
// the requests that run when their key is revoked. OPTIONS, which browsers send
// without a key, is answered 405: no other origin may call the API.
//
// Placeholder | Value
// ------------|------
// `{http.auth.user.id}` | id of the key, not the key
// `{http.model_gateway.key_id}` | the same
type Auth struct {
	app    *App
	access accessLog
}

// CaddyModule returns the module's registration.
func (Auth) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.model_auth",
		New: func() caddy.Module { return new(Auth) },
	}
}

// Provision finds the app.
func (a *Auth) Provision(ctx caddy.Context) error {
	a.access = newAccessLog(ctx)
	return provisionApp(ctx, &a.app)
}

// errKeyRevoked is the cause of a request's cancellation when its key is
// revoked.
var errKeyRevoked = errors.New("the key was revoked")

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (a *Auth) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	ex := newExchange()
	w, end := a.access.begin(w, r, ex)
	defer end()
	h := w.Header()
	h["X-Request-Id"] = []string{ex.RequestID} // OpenAI SDKs read this one,
	h["Request-Id"] = h["X-Request-Id"]        // Anthropic SDKs that one

	if r.Method == http.MethodOptions {
		_, derr := dialect.Lookup(r.Method, r.URL.EscapedPath(), r.Header)
		newAnswer(w).fail(dialect.OfPath(r.URL.Path, r.Header), ex.RequestID, derr)
		return nil
	}
	st, err := a.app.openStore()
	if err != nil {
		newAnswer(w).fail(dialect.OfPath(r.URL.Path, r.Header), ex.RequestID, a.app.internal("opening its store", err))
		return nil
	}
	key, reason := authenticate(st, r.Header)
	if key == nil {
		authFailuresTotal.WithLabelValues(reason).Inc()
		h.Set("WWW-Authenticate", `Bearer realm="postern"`)
		newAnswer(w).fail(dialect.OfPath(r.URL.Path, r.Header), ex.RequestID, dialect.InvalidKey(reason))
		return nil
	}
	ex.Key, ex.Account = key, key.Account()
	st.Touch(key)

	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer key.OnRevoke(func() { cancel(errKeyRevoked) })()
	if err := next.ServeHTTP(w, r.WithContext(ex.inContext(ctx))); err != nil {
		// Of a handler that is not ours. Returned, it would be logged together
		// with the request's header, X-Api-Key too.
		newAnswer(w).fail(dialect.OfPath(r.URL.Path, r.Header), ex.RequestID, a.app.foreign(err))
	}
	return nil
}

// authenticate finds the request's key; if there is none that is valid, it
// says why: missing, unknown or revoked.
func authenticate(st *store.Store, h http.Header) (key *store.LiveKey, reason string) {
	secret := sentKey(h)
	if secret == "" {
		return nil, "missing"
	}
	key, ok := st.FindKey(secret)
	switch {
	case !ok:
		return nil, "unknown"
	case key.Revoked():
		return nil, "revoked"
	}
	return key, ""
}

// sentKey returns what a client sent as its key, "" if nothing.
func sentKey(h http.Header) string {
	secret := bearer(h.Get("Authorization"))
	for i := 0; secret == "" && i < len(keyHeaders); i++ {
		secret = h.Get(keyHeaders[i])
	}
	return secret
}

// bearer returns the token of an Authorization header, "" if it holds none.
// The scheme's name is case-insensitive (RFC 9110 §11.1).
func bearer(header string) string {
	const scheme = "bearer "
	if len(header) < len(scheme) || !strings.EqualFold(header[:len(scheme)], scheme) {
		return ""
	}
	return strings.TrimSpace(header[len(scheme):])
}

// UnmarshalCaddyfile reads
//
//	model_auth
func (a *Auth) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return parseBlock(d, func(d *caddyfile.Dispenser) error {
		return d.Errf("model_auth has no options, got %q", d.Val())
	})
}

// Interface guards.
var (
	_ caddy.Provisioner           = (*Auth)(nil)
	_ caddyhttp.MiddlewareHandler = (*Auth)(nil)
	_ caddyfile.Unmarshaler       = (*Auth)(nil)
)
