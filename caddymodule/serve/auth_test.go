package serve

import (
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/turns"
	"github.com/postern-dev/postern/tests/rig/wait"
	"github.com/postern-dev/postern/tests/storetest"
)

// lateGateway returns a gateway whose edge is late, and the store of another edge.
func lateGateway(t *testing.T) (g *testGateway, edge *storetest.Edge, other *store.Store) {
	t.Helper()
	g = newGateway(t, 1<<20)
	kv := storetest.OpenBolt(t, t.TempDir()+"/shared.db")
	other, _ = storetest.OpenEdge(t, kv, store.Options{Edge: "a"})
	g.backend.Store, edge = storetest.OpenEdge(t, kv, store.Options{Edge: "b"})
	return g, edge, other
}

// A gateway that has lost its store refuses requests in the caller's dialect.
func TestStoreLost(t *testing.T) {
	t.Parallel()
	g, edge, _ := lateGateway(t)
	g.key, g.secret = g.newKey(t, store.DefaultAccount, "*")
	for _, tt := range []struct {
		path   string
		status int
		body   string
	}{
		{"/v1/chat/completions", 503, `"type":"server_error","param":null,"code":"overloaded"`},
		{"/v1/responses", 503, `"type":"server_error","param":null,"code":"overloaded"`},
		{"/v1/messages", 529, `{"type":"error","error":{"type":"overloaded_error"`},
	} {
		edge.Lose(true)
		w := g.post(tt.path, `{}`)
		if w.Code != tt.status || w.Header().Get("Retry-After") != "5" || !strings.Contains(w.Body.String(), tt.body) ||
			!strings.Contains(w.Body.String(), "lost its store") {
			t.Errorf("%s: %d %v %s", tt.path, w.Code, w.Header(), w.Body)
		}
		edge.Lose(false)
		if w := g.post(tt.path, `{}`); w.Code != http.StatusBadRequest {
			t.Errorf("%s with the store: %d %s", tt.path, w.Code, w.Body)
		}
	}
}

// wakes is an answer that has waited while the gateway was suspended. It calls wake before it is passed on.
type wakes struct {
	io.Reader
	wake func()
}

func (w wakes) Read(p []byte) (int, error) {
	w.wake()
	return w.Reader.Read(p)
}

// An answer that has waited in a suspended gateway does not reach the client, whose key may be revoked meanwhile:
// neither before its request is cut, nor after that.
func TestSuspendedForTooLong(t *testing.T) {
	t.Parallel()
	const event = `data: {"choices":[{"index":0,"delta":{"content":"secret"}}]}` + "\n\n"
	for path, body := range requests {
		for i := range 4 {
			stream, cut := i%2 == 1, i/2 == 1
			g, edge, _ := lateGateway(t)
			wake := edge.Suspend
			if cut {
				wake = g.backend.Store.CutRequests
			}
			deploy(t, g.backend.Store)
			g.key, g.secret = g.newKey(t, store.DefaultAccount, "*")
			g.answer = func(*http.Request) *http.Response {
				if stream {
					return upstreamAnswer("text/event-stream", wakes{strings.NewReader(event), wake}, -1)
				}
				return upstreamAnswer("application/json", wakes{strings.NewReader(completionOf("secret")), wake}, -1)
			}
			g.connect(fakeTunnel{g})
			if stream {
				body = strings.Replace(body, `"stream":false`, `"stream":true`, 1)
			}
			if w := g.post(path, body); strings.Contains(w.Body.String(), "secret") ||
				!strings.Contains(w.Body.String(), "lost its store") {
				t.Errorf("%s, stream %v, cut %v: %d %s", path, stream, cut, w.Code, w.Body)
			}
		}
	}
}

// lossy loses its store for too long after each report that it serves.
type lossy struct {
	*storetest.Edge
	cut func()
}

func (l *lossy) Serving() error {
	l.cut()
	return nil
}

// A request that begins while all requests are cut is cut, too.
func TestStoreLostAtTheBeginning(t *testing.T) {
	t.Parallel()
	g := newGateway(t, 1<<20)
	edge := &lossy{Edge: new(storetest.Edge)}
	s, err := store.New(storetest.OpenBolt(t, t.TempDir()+"/shared.db"), store.Options{Edge: "a", Cluster: edge})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	edge.cut, g.backend.Store = s.CutRequests, s
	g.key, g.secret = g.newKey(t, store.DefaultAccount, "*")
	if w := g.post("/v1/chat/completions", `{}`); w.Code != http.StatusServiceUnavailable ||
		!strings.Contains(w.Body.String(), "lost its store") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A gateway that starts without reaching its store refuses requests until it gives up.
func TestStoreAwayAtTheStart(t *testing.T) {
	t.Parallel()
	g := newGateway(t, 1<<20)
	g.router.Open = func() (*Backend, error) { return nil, fmt.Errorf("opening the store: %w", store.ErrUnavailable) }
	w := g.post("/v1/chat/completions", `{}`)
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" ||
		!strings.Contains(w.Body.String(), "lost its store") {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}

// If the gateway loses its store while a request waits, the request is not sent.
func TestStoreLostWhileWaiting(t *testing.T) {
	t.Parallel()
	g, edge, _ := lateGateway(t)
	deploy(t, g.backend.Store)
	g.key, g.secret = g.newKey(t, store.DefaultAccount, "*")
	g.answer = func(*http.Request) *http.Response {
		return upstreamAnswer("application/json", strings.NewReader(completionOf("hi")), -1)
	}
	g.connect(fakeTunnel{g})
	const path = "/v1/chat/completions"
	if w := g.post(path, requests[path]); w.Code != http.StatusOK {
		t.Errorf("with the store: %d %s", w.Code, w.Body)
	}
	d := g.limitTo1(t)
	g.backend.Turns.DeploymentChanged(d.Account, d.Name)
	place, err := g.backend.Turns.Wait(t.Context(), &turns.Request{Account: d.Account, Deployment: d.Name})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		wait.Until(t, "the request waits", func() bool {
			_, waiting := g.backend.Turns.Load(d.Account, d.Name)
			return waiting > 0
		})
		edge.Lose(true)
		place.Leave()
	}()
	if w := g.post(path, requests[path]); w.Code != http.StatusServiceUnavailable ||
		!strings.Contains(w.Body.String(), "lost its store") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A key that was just created at another edge is accepted. A key that is unknown while the store
// does not answer may be valid.
func TestKeyOfAnotherEdge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, edge, other := lateGateway(t)
		var err error
		if _, g.secret, err = other.CreateKey(t.Context(),
			store.DefaultAccount, store.KeyFields{Name: rand.Text(), Scope: "*"}); err != nil {
			t.Fatal(err)
		}
		edge.Cut(true)
		if w := g.post("/v1/chat/completions", `{}`); w.Code != http.StatusServiceUnavailable ||
			!strings.Contains(w.Body.String(), "The gateway's store is slow to respond") {
			t.Errorf("a store that does not answer in time: %d %s", w.Code, w.Body)
		}
		edge.Lose(true)
		if w := g.post("/v1/chat/completions", `{}`); w.Code != http.StatusServiceUnavailable ||
			!strings.Contains(w.Body.String(), "lost its store") {
			t.Errorf("without the store: %d %s", w.Code, w.Body)
		}
		edge.Lose(false)
		for secret, reason := range map[string]string{
			"": "missing", "pmt_x": "management_token", "ptt_x": "tunnel_token", "sk-of-another-server": "malformed",
		} {
			if _, got, err := authenticate(t.Context(), g.backend.Store, http.Header{"X-Api-Key": {secret}},
				netip.Addr{}); got != reason || err != nil {
				t.Errorf("%q: %s, %v", secret, got, err)
			}
		}
		edge.Cut(false)
		if w := g.post("/v1/chat/completions", `{}`); w.Code != http.StatusBadRequest {
			t.Errorf("with the store: %d %s", w.Code, w.Body)
		}
		g.secret += "x"
		if w := g.post("/v1/chat/completions", `{}`); w.Code != http.StatusUnauthorized {
			t.Errorf("a wrong key: %d %s", w.Code, w.Body)
		}
	})
}

// A request with a refused key is recorded for the key's account alone.
func TestRefusalOfAnotherAccount(t *testing.T) {
	t.Parallel()
	g := newGateway(t, 1<<20)
	if _, err := g.backend.Store.CreateAccount(t.Context(), stranger); err != nil {
		t.Fatal(err)
	}
	g.key, g.secret = g.newKey(t, stranger, "*")
	if _, err := g.backend.Store.RevokeKey(t.Context(), stranger, g.key.ID()); err != nil {
		t.Fatal(err)
	}
	ex, w := NewExchange(), httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/chat/completions", strings.NewReader(`{}`))
	r.Header.Set("Authorization", "Bearer "+g.secret)
	Serve(w, r, ex, g.Translator, g.router)
	if w.Code != http.StatusUnauthorized {
		t.Errorf("status %d, %s", w.Code, w.Body)
	}
	if ex.Outcome != activity.Refused || ex.Reason != "revoked" {
		t.Errorf("for the access log: %s, %s", ex.Outcome, ex.Reason)
	}
	own, others := g.backend.Activity.Recent(stranger), g.backend.Activity.Recent(store.DefaultAccount)
	if len(own) != 1 || own[0].Operation != "chat/completions" || own[0].KeyID != g.key.ID() || len(others) != 0 ||
		!strings.HasPrefix(own[0].Reason, "The key is revoked, since ") {
		t.Errorf("the account has %+v, the default one %+v", own, others)
	}
}

// A browser sends no key. The answer to GET /v1 names the page for people, if there is a console.
func TestPageWithoutKey(t *testing.T) {
	t.Parallel()
	g := newGateway(t, 1<<20)
	get := func(path string) string {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		Serve(w, r, NewExchange(), g.Translator, g.router)
		if w.Code != http.StatusUnauthorized {
			t.Errorf("%s: status %d", path, w.Code)
		}
		return w.Body.String()
	}
	const page = "Open https://gw.example.com/console/connect to see what a key may use."
	for path, named := range map[string]bool{"/v1": true, "/v1/": true, "/v1/models": false} {
		if body := get(path); strings.Contains(body, page) != named {
			t.Errorf("%s: %s", path, body)
		}
	}
	for _, r := range g.backend.Activity.Recent(store.DefaultAccount) {
		if r.Operation != "paths" && r.Operation != "models" {
			t.Errorf("recorded as %q: %+v", r.Operation, r)
		}
	}
	g.router.Page = func() string { return "" }
	if body := get("/v1"); strings.Contains(body, "Open ") {
		t.Errorf("without a console: %s", body)
	}
}

func TestAuthenticateAllocatesNothing(t *testing.T) {
	g, _, _ := lateGateway(t)
	_, secret := g.newKey(t, store.DefaultAccount, "*")
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Header.Set("Authorization", "Bearer "+secret)
	if n := testing.AllocsPerRun(1000, func() {
		if key, _, err := authenticate(r.Context(), g.backend.Store, r.Header, netip.Addr{}); key.LiveKey == nil ||
			err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
