package serve

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/store"
)

// errKeyRevoked is the cause of a request's cancellation when its key is
// revoked.
var errKeyRevoked = errors.New("the key was revoked")

// KeyHeaders are the headers, besides Authorization, that a key may come in:
// that of Anthropic's SDKs and that of Azure's. The first with a value counts.
var KeyHeaders = [...]string{"X-Api-Key", "Api-Key"}

// Authenticator checks keys.
type Authenticator struct{ *Server }

// Serve passes a request with a valid key on, and cancels it when the key is
// revoked; it answers all others.
func (a Authenticator) Serve(w http.ResponseWriter, r *http.Request, ex *Exchange, next Handler) {
	h := w.Header()
	h["X-Request-Id"] = []string{ex.RequestID} // OpenAI SDKs read this one,
	h["Request-Id"] = h["X-Request-Id"]        // Anthropic SDKs that one
	fail := func(derr *dialect.Error) {
		newAnswer(w).fail(dialect.OfPath(r.URL.Path, r.Header), ex.RequestID, derr)
	}
	if r.Method == http.MethodOptions {
		_, derr := dialect.Lookup(r.Method, r.URL.EscapedPath(), r.Header)
		fail(derr)
		return
	}
	b, err := a.Open()
	if err != nil {
		fail(a.internal("open its store", err))
		return
	}
	key, reason := authenticate(b.Store, r.Header)
	if key == nil {
		a.Observer.Refused(reason)
		h.Set("WWW-Authenticate", `Bearer realm="postern"`)
		fail(dialect.InvalidKey(reason))
		return
	}
	ex.Key, ex.Account = key, key.Account()
	b.Store.Touch(key)

	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer key.OnRevoke(func() { cancel(errKeyRevoked) })()
	if err := next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, exchangeKey{}, ex))); err != nil {
		// Of a handler that is not ours. Returned, it would be logged together
		// with the request's header, X-Api-Key too.
		fail(a.foreign(err))
	}
}

// authenticate finds the request's key. Without a valid one it returns the
// reason: missing, unknown or revoked.
func authenticate(st *store.Store, h http.Header) (key *store.LiveKey, reason string) {
	secret := SentKey(h)
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

// SentKey returns what a client sent as its key, "" for nothing.
func SentKey(h http.Header) string {
	secret := bearer(h.Get("Authorization"))
	for i := 0; secret == "" && i < len(KeyHeaders); i++ {
		secret = h.Get(KeyHeaders[i])
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
