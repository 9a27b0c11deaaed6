package console

import (
	"encoding/base64"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/signin"
	"github.com/postern-dev/postern/caddymodule/store"
)

const (
	policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

	maxForm   = 64 << 10
	maxNotice = 1 << 10
	maxNext   = 1 << 10
)

// ServeHTTP implements [http.Handler].
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	protect(w.Header(), r)
	_, token := bearer(r)
	if err := c.origins.Check(r); err != nil && (!token || hasCookie(r)) {
		c.refuseOrigin(w, r)
		return
	}
	if !isAPI(r) {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		if err := r.ParseForm(); err != nil {
			(&visit{Console: c, w: w, r: r}).fail(&formError{err})
			return
		}
	}
	c.mux.ServeHTTP(w, r)
}

// protect sets the headers of every response. Responses that may be cached override
// Cache-Control.
func protect(h http.Header, r *http.Request) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	// Not no-referrer: with it, browsers send forms with the origin "null", and
	// over plain HTTP no other header identifies the origin.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if r.TLS != nil {
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		// Not for localhost, other ports of which serve other programs over HTTP, and
		// not if the site sets a policy itself.
		if h.Get("Strict-Transport-Security") == "" && !isLocalhost(r.Host) {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
	}
	h.Set("Cache-Control", "no-store")
}

// isLocalhost reports whether a Host header names this machine.
func isLocalhost(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// formError is a form that could not be read.
type formError struct{ err error }

func (e *formError) Error() string {
	return "the form could not be read: reload the page and submit it again"
}

func (e *formError) Unwrap() []error { return []error{e.err, store.ErrInvalid} }

func isAPI(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/console/api/") }

// refuseOrigin refuses an unsafe request from another site.
func (c *Console) refuseOrigin(w http.ResponseWriter, r *http.Request) {
	const text = "This request came from another site, so the gateway refused it. Open the console and try again there."
	const shown = 100 // bytes of the path, which clients choose
	remote := c.ClientIP(r)
	c.refusals.Log(c.Logger, slog.LevelWarn, fair.Parse(remote).Widest(), c.Now(), "refused a request from another origin",
		"method", r.Method, "path", r.URL.Path[:min(len(r.URL.Path), shown)], "remote", remote)
	if isAPI(r) {
		manage.WriteError(w, http.StatusForbidden, text, nil)
		return
	}
	(&visit{Console: c, w: w, r: r}).failPage(http.StatusForbidden, text, nil)
}

// cookieName returns the name of a cookie. Over TLS it has the prefix __Host-, with
// which browsers ensure that no other host has set it.
func cookieName(r *http.Request, name string) string {
	if r.TLS != nil {
		return "__Host-" + name
	}
	return name
}

func newCookie(r *http.Request, name, value string) *http.Cookie {
	return &http.Cookie{
		Name: cookieName(r, name), Value: value, Path: "/", HttpOnly: true, Secure: secure(r), SameSite: http.SameSiteLaxMode,
	}
}

// secure reports whether the browser uses TLS: to Caddy, or to a proxy in front of
// it, according to the origin of a form.
func secure(r *http.Request) bool {
	return r.TLS != nil || r.Header.Get("Origin") == "https://"+r.Host
}

const (
	sessionCookie = "postern"
	noticeCookie  = "postern-notice"
	secretCookie  = "postern-secret"
	zoneCookie    = "postern-zone" // of a script: the time zone of the browser
)

func hasCookie(r *http.Request) bool {
	_, err := r.Cookie(cookieName(r, sessionCookie))
	return err == nil
}

// visit returns the visit of a request, with the user of its session. It fails with
// store.ErrUnavailable, and a message for the user, if the gateway has lost its store.
func (c *Console) visit(w http.ResponseWriter, r *http.Request) (*visit, error) {
	v := &visit{Console: c, w: w, r: r, ctx: r.Context()}
	if err := c.Manage.Serving(); err != nil {
		return v, err
	}
	find := c.SignIn.Session
	if strings.HasPrefix(r.URL.Path, "/console/events/") {
		find = c.SignIn.Peek // open pages reconnect; that does not count as use of the session
	}
	cookie, err := r.Cookie(cookieName(r, sessionCookie))
	if err != nil || cookie.Value == "" {
		return v, nil
	}
	session, user, err := find(r.Context(), cookie.Value)
	switch {
	case err == nil:
		v.User, v.Account = user, session.Account
		v.setSession(session)
	case !errors.Is(err, signin.ErrSession):
		return v, err
	}
	return v, nil
}

// may returns an error unless the user's role allows the route with a pattern.
func (v *visit) may(pattern string) error {
	if v.operations[pattern] == ownThings {
		return nil
	}
	return v.Manage.May(v.ctx, v.operations[pattern])
}

// signedIn reports whether the request has a session.
func (v *visit) signedIn() bool { return v.User.ID != "" }

// setSession sets the session and the caller of the visit.
func (v *visit) setSession(session store.Session) {
	v.Session = session
	v.ctx = manage.WithCaller(v.r.Context(), manage.Caller{
		Account: session.Account, User: v.User.ID, Name: v.User.Name, Session: session.ID, ConfirmedAt: session.ConfirmedAt,
		From: v.ClientIP(v.r),
	})
}

// startSession sets the cookie of a new session. An earlier session of the browser, of any
// user, ends. overTLS means that the browser uses TLS.
func (v *visit) startSession(s signin.Signed, overTLS bool) {
	if v.signedIn() {
		if err := v.SignIn.SignOut(v.ctx, v.Session); !store.Committed(err) {
			v.Logger.Error("failed to end the former session", "session_id", v.Session.ID, "error", err)
		}
	}
	cookie := newCookie(v.r, sessionCookie, s.Secret)
	cookie.Expires, cookie.Secure = s.Session.ExpiresAt, overTLS || cookie.Secure
	http.SetCookie(v.w, cookie)
}

// dropCookie deletes a cookie.
func (v *visit) dropCookie(name string) {
	cookie := newCookie(v.r, name, "")
	cookie.MaxAge = -1
	http.SetCookie(v.w, cookie)
}

// localPath returns next if it is a page of the console, else the home page.
func localPath(next string) string {
	const home = "/console/"
	u, err := url.Parse(next)
	if err != nil || len(next) > maxNext || u.Scheme != "" || u.Host != "" || u.User != nil || u.Opaque != "" ||
		!strings.HasPrefix(next, home) || strings.ContainsAny(next, "\\\r\n\t") || strings.Contains(u.Path, "..") {
		return home
	}
	for _, other := range []string{"api/", "events/", "static/", "sign-in", "sign-out"} {
		if strings.HasPrefix(u.Path, home+other) {
			return home
		}
	}
	return next
}

// askToSignIn responds to a request without a session.
func (v *visit) askToSignIn() {
	to := signInTab.url()
	if next := localPath(v.r.URL.RequestURI()); v.r.Method == http.MethodGet && next != "/console/" {
		to += "?" + url.Values{"next": {next}}.Encode()
	}
	switch {
	case isHTMX(v.r):
		// The whole page is redirected to the sign-in, and back afterwards.
		if from, err := url.Parse(v.r.Referer()); err == nil {
			to = signInTab.url() + "?" + url.Values{"next": {localPath(from.RequestURI())}}.Encode()
		}
		v.w.Header().Set("HX-Redirect", to)
		v.w.WriteHeader(http.StatusUnauthorized)
	case wantsJSON(v.r):
		manage.WriteError(v.w, http.StatusUnauthorized, "Your session has ended. Sign in again.", nil)
	case isModelClient(v.r): // GET /console/models is a page, too
		v.misdirected()
	default:
		_ = v.redirect(to)
	}
}

func wantsJSON(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Content-Type"), "application/json")
}

// bearer returns the management token of a request.
func bearer(r *http.Request) (string, bool) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(token), ok && strings.EqualFold(scheme, "Bearer")
}

// serveAPI serves the JSON API to the user of a token or a session. A request with an
// invalid token is refused even if it has a session.
func (c *Console) serveAPI(w http.ResponseWriter, r *http.Request) {
	var caller manage.Caller
	if secret, ok := bearer(r); ok {
		token, user, err := c.SignIn.Token(r.Context(), secret)
		if err != nil {
			refuseAPI(w, err)
			return
		}
		caller = manage.Caller{
			Account: token.Account, User: user.ID, Name: user.Name, Token: token.ID, TokenName: token.Name,
			Rights: token.Rights, Role: token.Role, From: c.ClientIP(r),
		}
	} else {
		v, err := c.visit(w, r)
		if err == nil && !v.signedIn() {
			err = errNotSignedIn
		}
		if err != nil {
			refuseAPI(w, err)
			return
		}
		caller = manage.CallerFrom(v.ctx)
	}
	c.api.ServeHTTP(w, r.WithContext(manage.WithCaller(r.Context(), caller)))
}

var errNotSignedIn = errors.New("sign in, or send a management token as Authorization: Bearer pmt_…; create one in " +
	"the console under Settings")

// refuseAPI refuses a request without a known caller: it is not signed in, or the gateway has
// lost the store that would show the caller.
func refuseAPI(w http.ResponseWriter, err error) {
	status := http.StatusUnauthorized
	if errors.Is(err, store.ErrUnavailable) {
		status = http.StatusServiceUnavailable
	} else {
		w.Header().Set("WWW-Authenticate", `Bearer realm="Postern"`)
	}
	manage.WriteError(w, status, sentence(err.Error()), err)
}

// leaveNotice stores a notice for the next page in a cookie: another process may
// serve that page.
func (v *visit) leaveNotice(notice string) {
	if notice == "" {
		return
	}
	cookie := newCookie(v.r, noticeCookie,
		base64.RawURLEncoding.EncodeToString([]byte(notice[:min(len(notice), maxNotice)])))
	cookie.MaxAge = int(time.Minute / time.Second)
	http.SetCookie(v.w, cookie)
}

// takeNotice returns and deletes the notice of the cookie.
func (v *visit) takeNotice() string {
	cookie, err := v.r.Cookie(cookieName(v.r, noticeCookie))
	if err != nil {
		return ""
	}
	v.dropCookie(noticeCookie)
	text, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil || len(text) > maxNotice {
		return ""
	}
	return strings.ToValidUTF8(string(text), "")
}

// leaveSecret stores the new secret of a record in the browser, sealed, for the next page.
func (v *visit) leaveSecret(record, secret string) error {
	sealed, err := v.SignIn.SealSecret(v.Session, record, secret)
	if err != nil {
		return err
	}
	cookie := newCookie(v.r, secretCookie, sealed)
	cookie.MaxAge = int(signin.SecretLife / time.Second)
	http.SetCookie(v.w, cookie)
	return nil
}

// takeSecret returns the secret that leaveSecret has stored, and deletes it. It returns "" if the
// browser keeps no secret of the record.
func (v *visit) takeSecret(record string) string {
	cookie, err := v.r.Cookie(cookieName(v.r, secretCookie))
	if err != nil {
		return ""
	}
	secret := v.SignIn.OpenSecret(v.Session, record, cookie.Value)
	if secret != "" {
		v.dropCookie(secretCookie)
	}
	return secret
}
