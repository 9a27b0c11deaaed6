package caddymodule

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// serveOne passes one request to a handler, as Caddy does.
func serveOne(t *testing.T, h caddyhttp.MiddlewareHandler, r *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, &caddyhttp.Server{})
	must(t, h.ServeHTTP(w, r, nil))
	return w
}

// A request before the app's Start gets an answer that asks for a retry. The next one is served.
func TestConsoleBeforeStart(t *testing.T) {
	app := provision(t, gatewayFile(freeUDP(t), "localhost:7443", filepath.Join(t.TempDir(), "gateway.db")))
	app.store.Messages = io.Discard
	h := &Console{app: app}
	w := serveOne(t, h, httptest.NewRequest("GET", "http://localhost:8080/console/sign-in", nil))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" ||
		!strings.Contains(w.Body.String(), "starting") {
		t.Errorf("before Start: %d %v %s", w.Code, w.Header(), w.Body)
	}
	start(t, app)
	w = serveOne(t, h, httptest.NewRequest("GET", "http://localhost:8080/console/sign-in", nil))
	if w.Code >= http.StatusInternalServerError || w.Header().Get("Content-Security-Policy") == "" {
		t.Errorf("after Start: %d %v %.300s", w.Code, w.Header(), w.Body)
	}
	if first, _ := h.get(); first == nil || first != h.handler {
		t.Error("the console is created for each request")
	}
}

// A connector that is being paired gets the address to dial once the gateway knows it.
func TestDiscovery(t *testing.T) {
	app := provision(t, gatewayFile(freeUDP(t), "gw.example.com:7443", filepath.Join(t.TempDir(), "gateway.db")))
	app.store.Messages = io.Discard
	h := &Tunnel{app: app}
	ask := func(method string) *httptest.ResponseRecorder {
		return serveOne(t, h, httptest.NewRequest(method, "http://localhost:8080"+discoveryPath, nil))
	}
	if w := ask("GET"); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" ||
		!strings.Contains(w.Body.String(), `"error"`) {
		t.Errorf("before Start: %d %s", w.Code, w.Body)
	}
	start(t, app)
	w := ask("GET")
	var got discovery
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	hub, err := app.listener.Hub()
	must(t, err)
	if strings.Contains(w.Body.String(), "version") {
		t.Errorf("the answer has the version: %s", w.Body)
	}
	want := discovery{
		Server: "gw.example.com:7443", Pin: hub.Pin(), URL: "http://localhost:8080",
		Console: "http://localhost:8080/console/",
	}
	if got != want || got.Pin == "" {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if w := ask("POST"); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d %v", w.Code, w.Header())
	}
}

// Without an address that connectors can dial, discovery fails.
func TestDiscoveryWithoutAddress(t *testing.T) {
	app := provision(t, "{\n model_gateway {\n  listen "+freeUDP(t)+"\n }\n}\n:8080 {\n model_gateway\n}")
	start(t, app)
	w := serveOne(t, &Tunnel{app: app}, httptest.NewRequest("GET", "http://localhost:8080"+discoveryPath, nil))
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "public gw.example.com:7443") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// Failed sign-ins are counted by Caddy's client IP.
func TestClientIP(t *testing.T) {
	r := httptest.NewRequest("GET", "/console/", nil)
	r.RemoteAddr = "192.0.2.7:4711"
	r.Header.Set("X-Forwarded-For", "198.51.100.1")
	if got := clientIP(r); got != "192.0.2.7" {
		t.Errorf("without Caddy: %q", got)
	}
	trusted := r.WithContext(context.WithValue(r.Context(), caddyhttp.VarsCtxKey,
		map[string]any{caddyhttp.ClientIPVarKey: "198.51.100.1"}))
	// The networks of keys are compared with the same address.
	for from, want := range map[*http.Request]string{r: "192.0.2.7", trusted: "198.51.100.1"} {
		if got := clientAddr(from); got.String() != want {
			t.Errorf("the address of the client is %v, not %s", got, want)
		}
	}
	if got := clientIP(trusted); got != "198.51.100.1" {
		t.Errorf("behind a trusted proxy: %q", got)
	}
}

// Streams end when the configuration begins to stop, before the http app waits
// for them. Other requests finish.
func TestStreamsEndWithTheConfiguration(t *testing.T) {
	app := provision(t, gatewayFile(freeUDP(t), "localhost:7443", filepath.Join(t.TempDir(), "gateway.db")))
	stream, done := (&Console{app: app}).untilEnd(httptest.NewRequest("GET", "/console/events/keys", nil))
	defer done()
	page, pageDone := (&Console{app: app}).untilEnd(httptest.NewRequest("GET", "/console/keys", nil))
	defer pageDone()
	if err := stream.Context().Err(); err != nil {
		t.Fatalf("ended at once: %v", err)
	}
	events, err := app.ctx.App("events")
	must(t, err)
	events.(*caddyevents.App).Emit(app.ctx, "stopping", nil)
	wait.For(t, stream.Context().Done(), "the end of the stream")
	if err := page.Context().Err(); err != nil {
		t.Errorf("a page was cut: %v", err)
	}
}

// Pages are notified of changes in their account, and of nothing else.
func TestChanges(t *testing.T) {
	app := provision(t, gatewayFile(freeUDP(t), "localhost:7443", filepath.Join(t.TempDir(), "gateway.db")))
	app.store.Messages = io.Discard
	start(t, app)
	st := app.store.Opened().Store
	must(t, errOf(st.CreateAccount(t.Context(), "other")))
	notified := make(chan struct{}, 100)
	stop := app.gateway.Changes(store.DefaultAccount, func() { notified <- struct{}{} })
	expect := func(what string, want bool) {
		t.Helper()
		select {
		case <-notified:
			if !want {
				t.Errorf("notified of %s", what)
			}
		case <-time.After(map[bool]time.Duration{true: time.Minute, false: 300 * time.Millisecond}[want]):
			if want {
				t.Errorf("not notified of %s", what)
			}
		}
		for len(notified) > 0 {
			<-notified
		}
	}
	must(t, errOf(st.CreateKey(t.Context(),
		store.DefaultAccount, store.KeyFields{Name: "laptop", Scope: "*"})))
	expect("a key", true)
	app.store.Opened().Activity.Record(store.DefaultAccount, activity.Request{ID: "req_1", Time: time.Now()})
	expect("a request", true)
	must(t, errOf(st.CreateKey(t.Context(), "other", store.KeyFields{Name: "laptop", Scope: "*"})))
	app.store.Opened().Activity.Record("other", activity.Request{ID: "req_2", Time: time.Now()})
	expect("another account", false)
	stop()
	must(t, errOf(st.CreateKey(t.Context(),
		store.DefaultAccount, store.KeyFields{Name: "desk", Scope: "*"})))
	expect("a key after the end", false)
}
