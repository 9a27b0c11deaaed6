package serve

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/panics"
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
// key no longer allows them, or cannot be checked for too long. It rejects all other requests.
func (a Authenticator) Serve(w http.ResponseWriter, r *http.Request, ex *Exchange, next Handler) {
	cleanPath(r.URL)
	h := w.Header()
	h["X-Request-Id"] = []string{ex.RequestID} // read by OpenAI's SDKs
	h["Request-Id"] = h["X-Request-Id"]        // read by Anthropic's SDKs
	if r.ProtoMajor == 1 && r.Header.Get("Expect") != "" {
		// The client waits for 100 Continue before it sends its body. net/http does not know that, because Caddy wraps
		// the body: on a connection that stays open, it would read the body before it sends an error.
		h.Set("Connection", "close")
	}
	if a.CORS.Serve(w, r) {
		return
	}
	fail := func(derr *dialect.Error) {
		ex.Outcome = outcomeOf(derr.Class())
		(&answer{w: w}).fail(dialect.OfPath(r.URL.Path, r.Header), ex.RequestID, derr)
	}
	passed := false // to the next handler, which may begin the answer
	defer a.contain(&passed, fail)
	if r.Method == http.MethodOptions {
		_, derr := dialect.Lookup(r.Method, r.URL.EscapedPath(), r.Header)
		fail(derr)
		return
	}
	b, err := a.Open()
	switch {
	case errors.Is(err, store.ErrUnavailable): // while the gateway starts; its log has the reason
		fail(dialect.StoreLost(false))
		return
	case err != nil:
		fail(a.internalError("open its store", err))
		return
	}
	from := a.ClientIP(r)
	key, reason, err := authenticate(r.Context(), b.Store, r.Header, from)
	if err != nil {
		fail(dialect.StoreLost(b.Store.InContact()))
		return
	}
	if reason != "" {
		ex.Reason = reason
		fail(a.refusedKey(b, h, r, ex, key))
		return
	}
	ctx, end, derr := b.begin(r.Context(), ex, key, from)
	defer end()
	if derr != nil {
		fail(derr)
		return
	}
	passed = true
	if err := next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, exchangeKey{}, ex))); err != nil {
		// This error is from another module's handler. If it were returned, Caddy
		// would log it with the request's headers, including X-Api-Key.
		fail(a.foreignError(err))
	}
}

// refusedKey returns the error for a request whose key was refused, and records the request.
func (a Authenticator) refusedKey(b *Backend, h http.Header, r *http.Request, ex *Exchange, key store.Credential,
) *dialect.Error {
	a.Observer.Refused(ex.Reason)
	derr := dialect.RefusedKey(ex.Reason)
	if r.URL.Path == "/v1" && a.Page() != "" { // perhaps a person with a browser
		derr.Message += " Open " + a.Page() + " to see what a key may use."
	}
	op, _ := dialect.Lookup(r.Method, r.URL.EscapedPath(), r.Header)
	if b.refuse(ex, key, op, derr) == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="postern"`)
	}
	return derr
}

// begin begins a request with a key, from a client's address. The returned context ends when the key no longer allows
// the request. The caller must call end.
func (b *Backend) begin(ctx context.Context, ex *Exchange, key store.Credential, from netip.Addr) (
	_ context.Context, end func(), derr *dialect.Error,
) {
	ctx, cancel := context.WithCancelCause(ctx)
	call := key.Begin(from, func(why store.Refusal) { cancel(endedByKey(why, ex)) })
	end = func() { call.End(); cancel(nil) }
	if b.Store.Serving() != nil { // after Begin: see [store.Store.CutRequests]
		return ctx, end, dialect.StoreLost(false)
	}
	ex.Account, ex.Key, ex.backend, ex.keyCall = key.Account(), key.LiveKey, b, call
	b.Store.Touch(key.LiveKey)
	return ctx, end, nil
}

// errCrashed is the client's error for a panic. net/http would end the connection, and log the
// value of the panic, which can be a prompt.
var errCrashed = dialect.Internal("The gateway failed to serve the request because of a bug; its log has the stack " +
	"trace.")

// contain ends a panic of the handler that defers it. If the handler has passed the request on, contain
// ends the connection. Otherwise the client gets an error.
func (a Authenticator) contain(passed *bool, fail func(*dialect.Error)) {
	switch v := recover(); {
	case a.crashed(v) && !*passed:
		fail(errCrashed)
	case v != nil:
		panic(http.ErrAbortHandler)
	}
}

// crashed reports whether v, from recover, is a defect, and logs it. http.ErrAbortHandler is not.
func (s *Server) crashed(v any) bool {
	if v == nil || v == http.ErrAbortHandler {
		return false
	}
	panics.Caught(v).Log(s.Logger, "serving a request")
	return true
}

// cleanPath removes a second /v1 and a slash at the end, which some clients add when they join a path to
// a base URL. All later handlers, such as a rate limit for some paths, see the same path for the same
// operation.
func cleanPath(u *url.URL) {
	const prefix = "/v1"
	path, ok := strings.CutPrefix(u.EscapedPath(), prefix)
	if !ok {
		return
	}
	first, last := 0, len(u.Path)
	if again, ok := strings.CutPrefix(path, prefix); ok && (again == "" || again[0] == '/') {
		path, first = again, len(prefix)
	}
	if plain, ok := strings.CutSuffix(path, "/"); ok {
		path, last = plain, last-1
	}
	if u.Path = u.Path[first:last]; u.RawPath != "" {
		u.RawPath = prefix + path
	}
}

// refuse records a request without a valid key, and returns its status. If the key is unknown, the
// request has no account, and is recorded for the default account.
func (b *Backend) refuse(ex *Exchange, key store.Credential, op dialect.Operation, derr *dialect.Error) (status int) {
	status = derr.HTTPStatus(op.Dialect)
	r := activity.Request{
		ID: ex.RequestID, Time: ex.Start, Dialect: string(op.Dialect), Operation: op.Name(), Status: status,
		ErrorClass: string(derr.Class()),
	}
	r.ErrorCode, r.Error = derr.Logged()
	account := store.DefaultAccount
	if key.LiveKey != nil {
		k := key.Key()
		account, r.KeyID, r.KeyName = key.Account(), k.ID, k.Name
		at := map[string]*time.Time{
			"revoked": k.RevokedAt, "expired": k.ExpiresAt, "disabled": k.DisabledAt,
			"suspended": new(b.Store.SuspendedFrom(k.Owner)),
		}[ex.Reason]
		if at != nil {
			r.Reason = "The key is " + ex.Reason + ", since " + at.UTC().Format("2006-01-02 15:04 UTC") + "."
		}
	}
	b.Activity.Refuse(account, r)
	return status
}

// endedByKey returns the error of a running request that its key no longer allows.
func endedByKey(why store.Refusal, ex *Exchange) *dialect.Error {
	if why == store.RefusedScope && ex.question == nil {
		return dialect.OutOfScope(ex.Model, "") // set before AllowModel
	}
	return dialect.EndedKey(string(why))
}

// authenticate finds the request's key. If the key is refused, it returns the reason, as for
// [dialect.RefusedKey]. It fails if keys of other gateways cannot be read.
func authenticate(ctx context.Context, st *store.Store, h http.Header,
	from netip.Addr,
) (key store.Credential, reason string, err error) {
	secret := SentKey(h)
	key, ok := st.FindKey(secret)
	if !ok {
		if reason := misplaced(secret); reason != "" {
			return key, reason, nil
		}
		if err := st.Refresh(ctx); err != nil {
			return key, "", err
		}
		if key, ok = st.FindKey(secret); !ok {
			return key, "unknown", nil
		}
	}
	return key, string(key.Refusal(from)), nil
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
	return malformed(secret)
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
