package console

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/observed"
	"github.com/postern-dev/postern/caddymodule/pairing"
	"github.com/postern-dev/postern/caddymodule/signin"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/caddymodule/turns"
	"github.com/postern-dev/postern/tests/asktest"
)

const (
	base     = "https://gw.example.com"
	password = "correct horse battery"
)

// house is a console with a clock and a log, real operations and fake tunnels.
type house struct {
	testing.TB
	console  *Console
	store    *store.Store
	signIn   *signin.Service
	service  *manage.Service
	lines    *lines
	observed *observed.Table
	desk     *pairing.Service
	log      *activity.Log
	endpoint manage.Endpoint
	webhooks []manage.Webhook
	running  map[string][2]int // running and queued requests, by model

	mu      sync.Mutex
	offset  time.Duration
	written strings.Builder
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// errOf returns the last result of a call, its error.
func errOf(results ...any) error {
	err, _ := results[len(results)-1].(error)
	return err
}

func (h *house) now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().Add(h.offset)
}

func (h *house) pass(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.offset += d
}

func (h *house) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.written.Write(b)
}

func (h *house) logged() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.written.String()
}

func newHouse(t testing.TB) *house {
	t.Helper()
	return newHouseIn(t, nil)
}

// newHouseIn returns a console of an edge of a cluster, which may be nil.
func newHouseIn(t testing.TB, cluster manage.Cluster) *house {
	t.Helper()
	kv, err := store.OpenBolt(filepath.Join(t.TempDir(), "gateway.db"), store.BoltOptions{})
	must(t, err)
	return newHouseWith(t, cluster, func(o store.Options) *store.Store {
		s, err := store.New(kv, o)
		must(t, err)
		t.Cleanup(func() { _ = s.Close() })
		return s
	})
}

// newHouseWith is newHouse with a store that other gateways may share.
func newHouseWith(t testing.TB, cluster manage.Cluster, open func(store.Options) *store.Store) *house {
	t.Helper()
	// Pages count what was used in this hour and on this day, so no test begins in the last seconds of one.
	if left := time.Hour - time.Since(time.Now().Truncate(time.Hour)); left < 5*time.Second {
		time.Sleep(left)
	}
	h := &house{
		TB: t, lines: &lines{serve: make(map[string]http.Handler)},
		endpoint: manage.Endpoint{
			URL: base, Listen: ":7443", Public: "gw.example.com:7443", Pin: tabsPin, Console: base + "/console/", Verified: true,
		},
	}
	logger := slog.New(slog.NewTextHandler(h, &slog.HandlerOptions{Level: slog.LevelDebug}))
	h.store = open(store.Options{Now: h.now, Logger: logger})
	h.desk = pairing.New(pairing.Options{
		Store: h.store, Token: func(string, string) (string, error) { return "ptt_test", nil },
		Pin: func() string { return tabsPin },
	})
	t.Cleanup(h.desk.Close)
	h.log = activity.New(activity.Options{Store: h.store})
	t.Cleanup(func() { _ = h.log.Close() })
	var err error
	h.signIn, err = signin.New(signin.Options{Store: h.store, Now: h.now, Logger: logger})
	must(t, err)
	h.lines.ask = asktest.New(t, h.store, h.log,
		func(string, tunnel.Target) (r tunnel.DeploymentRoute, ok bool) { return r, false })
	h.observed = h.lines.ask.Observed
	h.service = manage.New(manage.Options{
		Observed: h.observed, Limits: noLimits, Server: loaded, Ask: h.lines.ask.Ask,
		Load:  func(_, model string) (running, queued int) { return h.running[model][0], h.running[model][1] },
		Store: h.store, Tunnels: h.lines, Pairing: h.desk, SignIn: h.signIn, Activity: h.log, Folder: connectors(t),
		Cluster: cluster, Now: h.now, Logger: logger, Build: manage.Build{Version: "v9.9.10", Caddy: "v2.11.9"},
		Endpoint: func() manage.Endpoint { return h.endpoint },
		Webhooks: func() []manage.Webhook { return h.webhooks },
	})
	h.console = New(Options{
		Manage: h.service, SignIn: h.signIn, Logger: logger, Now: h.now, ClientIP: remoteIP,
		Changes: func(account string, f func()) func() {
			return h.store.Subscribe(func(c store.Change) {
				if c.Account == account {
					f()
				}
			})
		},
	})
	return h
}

// user creates a user with the password of all tests.
func (h *house) user(account, name string) store.User {
	h.Helper()
	u, err := h.signIn.AddUser(h.Context(), account, name, password, store.RoleAdmin)
	must(h, err)
	return u
}

// in returns the browser of a signed-in user, without the delay of a password.
func (h *house) in(u store.User) *browser {
	h.Helper()
	b := h.browser()
	b.enter(u)
	return b
}

// newGateway returns the browser of the user ada at a new house.
func newGateway(t testing.TB) *browser {
	t.Helper()
	b := newHouse(t).browser()
	b.signInAs(store.DefaultAccount, "ada")
	return b
}

// browser keeps cookies and sends the origin of its requests, as browsers do.
type browser struct {
	*house
	cookies map[string]*http.Cookie
	plain   bool // http instead of https
}

// enter signs a user in. Later requests are from this user.
func (b *browser) enter(u store.User) {
	b.Helper()
	_, secret, err := b.store.CreateSession(b.Context(), u.ID, signin.MethodPassword, "192.0.2.1", "test")
	must(b, err)
	name := "__Host-postern"
	if b.plain {
		name = "postern"
	}
	b.cookies[name] = &http.Cookie{Name: name, Value: secret}
}

// signInAs creates a user without a password and signs it in.
func (b *browser) signInAs(account, name string) {
	b.Helper()
	u, err := b.store.CreateUser(b.Context(), account, name, "", store.RoleAdmin)
	must(b, err)
	b.enter(u)
}

func (h *house) browser() *browser { return &browser{house: h, cookies: make(map[string]*http.Cookie)} }

// request sends a request of the browser, which tweak may change.
func (b *browser) request(method, path, body string, tweak ...func(*http.Request)) *httptest.ResponseRecorder {
	b.Helper()
	scheme := "https"
	if b.plain {
		scheme = "http"
	}
	r := httptest.NewRequest(method, scheme+"://gw.example.com"+path, strings.NewReader(body)).WithContext(b.Context())
	r.RequestURI = path
	if r.TLS = nil; !b.plain {
		r.TLS = &tls.ConnectionState{}
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", scheme+"://gw.example.com")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	for _, c := range b.cookies {
		r.AddCookie(c)
	}
	for _, t := range tweak {
		t(r)
	}
	w := httptest.NewRecorder()
	b.console.ServeHTTP(w, r)
	for _, c := range w.Result().Cookies() {
		if c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		} else {
			b.cookies[c.Name] = c
		}
	}
	return w
}

func (b *browser) get(path string) *httptest.ResponseRecorder {
	b.Helper()
	return b.request(http.MethodGet, path, "")
}

func (b *browser) post(path string, form ...string) *httptest.ResponseRecorder {
	b.Helper()
	return b.request(http.MethodPost, path, encode(form...))
}

func encode(form ...string) string {
	values := url.Values{}
	for i := 0; i < len(form); i += 2 {
		values.Set(form[i], form[i+1])
	}
	return values.Encode()
}

// page gets a page that must exist.
func (b *browser) page(path string) string {
	b.Helper()
	w := b.get(path)
	if w.Code != http.StatusOK {
		b.Fatalf("GET %s: status %d, location %q: %s", path, w.Code, w.Header().Get("Location"), mainPart(w.Body.String()))
	}
	return w.Body.String()
}

// goes checks that a response is a redirect.
func (b *browser) goes(w *httptest.ResponseRecorder, to string) {
	b.Helper()
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != to {
		b.Fatalf("status %d, location %q, want 303 to %q: %s", w.Code, w.Header().Get("Location"), to,
			mainPart(w.Body.String()))
	}
}

// refused checks the status and the error of a response.
func (b *browser) refused(w *httptest.ResponseRecorder, status int, text string) {
	b.Helper()
	if w.Code != status || !strings.Contains(w.Body.String(), text) {
		b.Fatalf("status %d, want %d with %q: %s", w.Code, status, text, mainPart(w.Body.String()))
	}
}

// secretIn returns the secret that a page shows once.
func (b *browser) secretIn(page string) string {
	b.Helper()
	_, rest, ok := strings.Cut(page, `id="shown-once-secret">`)
	secret, _, closed := strings.Cut(rest, "<")
	if !ok || !closed {
		b.Fatalf("the page shows no secret: %s", mainPart(page))
	}
	return secret
}

// noLimits are those of each key.
func noLimits(context.Context, string, []limits.Subject) (limits.Usage, error) {
	return limits.Usage{}, nil
}

// loaded is the state of each server that loads one model at a time.
func loaded(_, connector, _ string) turns.ServerState {
	return turns.ServerState{Connector: connector, Loaded: "qwen<3>", Swaps: 3, Swapping: 4500 * time.Millisecond}
}
