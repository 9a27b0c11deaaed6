package serve

import (
	"context"
	"net/http"
	"strings"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/store"
)

// KeyHeaders are the headers that may carry a key in addition to Authorization.
// Anthropic's and Azure's SDKs send them. The first one with a value is used.
var KeyHeaders = [...]string{"X-Api-Key", "Api-Key"}

// Authenticator checks keys.
type Authenticator struct {
	*Server
	CORS CORS
}

// Serve passes requests with a valid key to the next handler, and cancels them when the
// key is revoked, or cannot be checked for too long. It rejects all other requests.
func (a Authenticator) Serve(w http.ResponseWriter, r *http.Request, ex *Exchange, next Handler) {
	h := w.Header()
	h["X-Request-Id"] = []string{ex.RequestID} // read by OpenAI's SDKs
	h["Request-Id"] = h["X-Request-Id"]        // read by Anthropic's SDKs
	if a.CORS.serve(w, r) {
		return
	}
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
	key, reason, err := authenticate(r.Context(), b.Store, r.Header)
	if err != nil {
		fail(dialect.StoreLost())
		return
	}
	if key == nil {
		a.Observer.Refused(reason)
		h.Set("WWW-Authenticate", `Bearer realm="postern"`)
		fail(dialect.InvalidKey(reason))
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer key.OnCut(func() { cancel(cut(key)) })()
	if b.Store.Serving() != nil { // after OnCut: see [store.Store.CutRequests]
		fail(dialect.StoreLost())
		return
	}
	ex.Key, ex.Account, ex.backend = key, key.Account(), b
	b.Store.Touch(key)
	if err := next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, exchangeKey{}, ex))); err != nil {
		// This error is from another module's handler. If it were returned, Caddy
		// would log it with the request's headers, including X-Api-Key.
		fail(a.foreign(err))
	}
}

// cut returns the error of a running request that its key's OnCut ends.
func cut(key *store.LiveKey) *dialect.Error {
	if key.Revoked() {
		return dialect.RevokedKey()
	}
	return dialect.StoreLostDuring()
}

// authenticate finds the request's key. If the key is not valid, it returns the
// reason, as for [dialect.InvalidKey]. It fails if a key of another gateway cannot be
// looked for.
func authenticate(ctx context.Context, st *store.Store, h http.Header) (key *store.LiveKey, reason string, err error) {
	secret := SentKey(h)
	key, ok := st.FindKey(secret)
	if !ok {
		if reason := misplaced(secret); reason != "" {
			return nil, reason, nil
		}
		if err := st.LookAgain(ctx); err != nil {
			return nil, "", err
		}
		key, ok = st.FindKey(secret)
	}
	switch {
	case !ok:
		return nil, "unknown", nil
	case key.Revoked():
		return nil, "revoked", nil
	}
	return key, "", nil
}

// misplaced returns the reason why a secret cannot be a key, or "".
func misplaced(secret string) string {
	switch {
	case secret == "":
		return "missing"
	case strings.HasPrefix(secret, "pmt_"):
		return "management_token"
	case strings.HasPrefix(secret, "ptt_"):
		return "tunnel_token"
	}
	return ""
}

// SentKey returns the key that the client sent, or "".
func SentKey(h http.Header) string {
	secret := bearer(h.Get("Authorization"))
	for i := 0; secret == "" && i < len(KeyHeaders); i++ {
		secret = h.Get(KeyHeaders[i])
	}
	return secret
}

// bearer returns the bearer token of an Authorization header, or "".
// The scheme's name is case-insensitive (RFC 9110 §11.1).
func bearer(header string) string {
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
