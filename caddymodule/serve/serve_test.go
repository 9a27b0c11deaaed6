package serve

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/caddymodule/turns"
	"github.com/postern-dev/postern/connector/memory"
	"github.com/postern-dev/postern/tests/rig/wait"
	"github.com/postern-dev/postern/tests/storetest"
)

// testGateway is the whole request path in this process, with a key and the
// deployment m. Its one tunnel, which always exists, leads to answer.
type testGateway struct {
	*Translator
	router  *Router
	backend *Backend
	key     *store.LiveKey
	secret  string
	counts  *counts
	route   tunnel.DeploymentRoute // of all deployments
	// rechecks counts calls of Recheck.
	rechecks atomic.Int64

	// answer is the upstream.
	answer func(r *http.Request) *http.Response
}

// newGateway returns a gateway with a memory budget of so many bytes.
func newGateway(t testing.TB, budget int64) *testGateway {
	t.Helper()
	return gatewayOf(t, storetest.New(t), budget)
}

// gatewayOf is newGateway with a store.
func gatewayOf(t testing.TB, st *store.Store, budget int64) *testGateway {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	log := activity.New(activity.Options{Store: st, Logger: quiet})
	backend, err := NewBackend(st, memory.NewBudget(budget), log, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		backend.Close()
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	deploy(t, st)
	g := &testGateway{backend: backend, counts: new(counts)}
	server := &Server{
		Open:     func() (*Backend, error) { return backend, nil },
		Route:    func(string, tunnel.Target) (r tunnel.DeploymentRoute, ok bool) { return g.route, true },
		Recheck:  func(string, tunnel.Target) { g.rechecks.Add(1) },
		StatusOf: func(error) int { return 0 }, Observer: g.counts, Logger: quiet,
		Page:     func() string { return "https://gw.example.com/console/connect" },
		ClientIP: func(r *http.Request) netip.Addr { return netip.MustParseAddrPort(r.RemoteAddr).Addr() },
	}
	backend.Observed.Route = func(connector string, to tunnel.Target) (tunnel.DeploymentRoute, bool) {
		return server.Route(connector, to)
	}
	g.Translator = &Translator{Server: server, MaxBody: DefaultMaxBody, ResponseStore: StoreOn}
	g.router = &Router{Server: server, ConnectWait: -1}
	g.key, g.secret = g.newKey(t, store.DefaultAccount, "m*")
	g.connect(fakeTunnel{g})
	return g
}

// newKey creates a key.
func (g *testGateway) newKey(t testing.TB, account, scope string) (*store.LiveKey, string) {
	t.Helper()
	name := "test"
	if len(g.backend.Store.Keys(account)) > 0 {
		name += " " + scope
	}
	_, secret, err := g.backend.Store.CreateKey(t.Context(), account, store.KeyFields{Name: name, Scope: scope})
	if err != nil {
		t.Fatal(err)
	}
	key, ok := g.backend.Store.FindKey(secret)
	if !ok {
		t.Fatal("the key is not known")
	}
	return key.LiveKey, secret
}

// connect connects all connectors of m with a tunnel.
func (g *testGateway) connect(t Tunnel) {
	d, _ := g.backend.Store.Deployment(store.DefaultAccount, "m")
	for _, id := range d.Connectors {
		g.connectOne(store.DefaultAccount, id, t)
	}
}

// connectOne connects a connector.
func (g *testGateway) connectOne(account, id string, t Tunnel) {
	g.backend.Turns.SetConnector(connectorAt(account, id, t))
}

// connectorAt returns a connector with a tunnel, whose only upstream is ollama.
func connectorAt(account, id string, t Tunnel) turns.Connector {
	return turns.Connector{
		ID: id, Account: account, Tunnel: t, Servers: []turns.Server{{Name: "ollama"}},
		Resolve: func(_, _, model string) (string, string, error) { return "ollama", cmp.Or(model, "up"), nil },
	}
}

// fakeTunnel is the one tunnel of a testGateway.
type fakeTunnel struct{ g *testGateway }

func (f fakeTunnel) Send(r *http.Request, _ string) (*http.Response, error) {
	return f.g.answer(r), nil
}

// counts is an Observer.
type counts struct {
	mu      sync.Mutex
	running float64
	seen    []string
}

func (c *counts) add(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, fmt.Sprintf(format, args...))
}

func (c *counts) Running(_ *Exchange, change float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running += change
}

func (c *counts) Refused(reason string)               { c.add("refused: %s", reason) }
func (c *counts) FirstByte(ex *Exchange)              { c.add("first byte of %s", ex.Deployment) }
func (c *counts) Rejected(_ *Exchange, reason string) { c.add("rejected: %s", reason) }
func (c *counts) Limited(s limits.State)              { c.add("limited: %s of the %s", s.Limit, s.Of) }
func (c *counts) Queued(*Exchange, time.Duration)     {}
func (c *counts) Ended(ex *Exchange, e Ending) {
	c.add("ended: %s %s %d, %d and %d tokens", ex.Operation.Dialect, ex.Deployment, e.Status, ex.Usage.PromptTokens,
		ex.Usage.CompletionTokens)
}
func (c *counts) Counted(_ *Exchange, u dialect.Usage) { c.add("counted: %+v", u) }

// last returns the last entry.
func (c *counts) last() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[len(c.seen)-1]
}

// HandlerFunc is a function that is a Handler.
type HandlerFunc func(w http.ResponseWriter, r *http.Request) error

// ServeHTTP implements Handler.
func (f HandlerFunc) ServeHTTP(w http.ResponseWriter, r *http.Request) error { return f(w, r) }

// Serve serves a request with the three handlers, nested as in a route of Caddy.
func Serve(w http.ResponseWriter, r *http.Request, ex *Exchange, t *Translator, rt *Router) {
	route := HandlerFunc(func(_ http.ResponseWriter, r *http.Request) error { return rt.Serve(r) })
	translate := HandlerFunc(func(w http.ResponseWriter, r *http.Request) error { return t.Serve(w, r, route) })
	Authenticator{Server: t.Server}.Serve(w, r, ex, translate)
}

// request returns a request with this exchange, as Translator serves it.
func (g *testGateway) request(ex *Exchange) *clientRequest {
	return &clientRequest{Translator: g.Translator, Backend: g.backend, modelRequest: modelRequest{exchange: ex}}
}

// send sends a request, which is complete when it returns.
func (g *testGateway) send(w http.ResponseWriter, r *http.Request) {
	r.Header.Set("Authorization", "Bearer "+g.secret)
	Serve(w, r, NewExchange(), g.Translator, g.router)
}

// post sends a body to a path.
func (g *testGateway) post(path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	g.send(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
	return w
}

// returned fails the test if a part of the budget is still reserved.
func (g *testGateway) returned(t *testing.T) {
	t.Helper()
	wait.Until(t, "the budget is free, also of samples", func() bool { return g.backend.Memory.Stats().Reserved == 0 })
}

// After a success, the model must be listed, or its server is asked again.
func TestRecheckAfterAnswer(t *testing.T) {
	g := newGateway(t, 64<<20)
	for i, status := range []int{http.StatusOK, http.StatusNotFound, http.StatusServiceUnavailable, http.StatusOK} {
		g.answer = func(*http.Request) *http.Response {
			return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(`{}`))}
		}
		g.post("/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`)
		if got, want := g.rechecks.Load(), []int64{1, 1, 1, 2}[i]; got != want {
			t.Errorf("after status %d: %d questions, want %d", status, got, want)
		}
	}
}

// Handlers in a wrong order, a handler of another module, and a missing handler.
func TestOtherHandlers(t *testing.T) {
	g := newGateway(t, 64<<20)
	r := func() *http.Request {
		r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(requests["/v1/chat/completions"]))
		r.Header.Set("Authorization", "Bearer "+g.secret)
		return r
	}
	if err := g.Serve(httptest.NewRecorder(), r(), nil); !errors.Is(err, errOrder) {
		t.Errorf("without Authenticator: %v", err)
	}
	if err := g.router.Serve(r()); !errors.Is(err, errOrder) {
		t.Errorf("without Authenticator: %v", err)
	}
	for want, last := range map[string]HandlerFunc{
		"no model_route follows":   func(http.ResponseWriter, *http.Request) error { return nil },
		"failed to pass a request": func(http.ResponseWriter, *http.Request) error { return errors.New("broken") },
	} {
		w := httptest.NewRecorder()
		Authenticator{Server: g.Server}.Serve(w, r(), NewExchange(),
			HandlerFunc(func(w http.ResponseWriter, r *http.Request) error { return g.Serve(w, r, last) }))
		if w.Code != 500 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%d %s, want %q", w.Code, w.Body, want)
		}
	}
}
