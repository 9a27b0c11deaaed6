package serve

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/caddymodule/queue"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// busyTunnel is a tunnel without a permit for the first request.
type busyTunnel struct {
	fakeTunnel
	attempts *atomic.Int32
}

func (b busyTunnel) Send(r *http.Request, c fair.Client) (*http.Response, error) {
	if b.attempts.Add(1) == 1 {
		return nil, link.ErrNoCredit
	}
	return b.fakeTunnel.Send(r, c)
}

// permittedTunnel is a tunnel with a permit.
type permittedTunnel struct {
	busyTunnel
	id    string
	route error
	sent  bool
	left  chan struct{}
}

func (r *permittedTunnel) Connector() string { return r.id }

func (r *permittedTunnel) Resolve(_, _, _ string) (upstream, model string, err error) {
	return "ollama", "up", r.route
}

func (r *permittedTunnel) Send(request *http.Request, c fair.Client) (*http.Response, error) {
	r.sent = true
	return r.busyTunnel.Send(request, c)
}

func (r *permittedTunnel) Leave() {
	if !r.sent {
		close(r.left)
	}
}

// busyGateway returns a gateway whose tunnel is full for the first request, which then gets a
// permit. onPermit is called before.
func busyGateway(t *testing.T, permitted *permittedTunnel, onPermit func(*testGateway)) *testGateway {
	t.Helper()
	g := newGateway(t, 64<<20)
	d := g.limitTo1(t)
	g.router.Queue.Wait = time.Minute
	g.answer = func(*http.Request) *http.Response {
		return upstreamAnswer("application/json", strings.NewReader(completionOf("hi")), -1)
	}
	permitted.busyTunnel = busyTunnel{fakeTunnel{g}, new(atomic.Int32)}
	permitted.id = d.Connectors[0]
	g.router.Choose = func(_ context.Context, _ []string, _ tunnel.Target, tried []Tunnel,
		_ time.Duration,
	) (Tunnel, error) {
		if len(tried) > 0 {
			return nil, tunnel.ErrOffline
		}
		return permitted.busyTunnel, nil
	}
	g.router.AwaitPermit = func(context.Context, []Tunnel, fair.Client, time.Duration) (PermittedTunnel, error) {
		onPermit(g)
		return permitted, nil
	}
	return g
}

// limitTo1 lets m have one request at a time.
func (g *testGateway) limitTo1(t *testing.T) store.Deployment {
	t.Helper()
	d, err := g.backend.Store.EditDeployment(t.Context(), store.DefaultAccount, "m", func(d *store.Deployment) error {
		d.MaxConcurrency = 1
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A request does not keep the permit of a connector while it waits in the queue.
func TestNoPermitWhileInQueue(t *testing.T) {
	permit, left := make(chan queue.Permit, 1), make(chan struct{})
	g := busyGateway(t, &permittedTunnel{left: left}, func(g *testGateway) {
		of := queue.Name{Account: store.DefaultAccount, Deployment: "m"}
		p, err := g.backend.Queues.Enter(t.Context(), of, fair.Client{Key: "other"}, queue.Bounds{})
		if err != nil {
			t.Error(err)
		}
		permit <- p
	})
	done := make(chan *httptest.ResponseRecorder, 1)
	go func() { done <- g.post("/v1/chat/completions", requests["/v1/chat/completions"]) }()
	other := wait.For(t, permit, "it waits for a permit of the connector")
	wait.For(t, left, "it releases the permit")
	other.Leave()
	if w := wait.For(t, done, "it is answered"); w.Code != http.StatusOK {
		t.Errorf("status %d, %s", w.Code, w.Body)
	}
}

// A permit is released if the connector no longer has the model.
func TestPermitWithoutRoute(t *testing.T) {
	left := make(chan struct{})
	g := busyGateway(t, &permittedTunnel{route: tunnel.ErrNoRoute, left: left}, func(*testGateway) {})
	if w := g.post("/v1/chat/completions", requests["/v1/chat/completions"]); w.Code < 500 {
		t.Errorf("status %d, %s", w.Code, w.Body)
	}
	wait.For(t, left, "the permit is released")
}

// slowWriter calls a function before the first byte of the answer is written.
type slowWriter struct {
	*httptest.ResponseRecorder
	before func()
}

func (w *slowWriter) WriteHeader(status int) {
	w.before()
	w.ResponseRecorder.WriteHeader(status)
}

// A place is free once the gateway has read the answer, however slowly the client reads it.
func TestPlaceIsFreeOnceTheAnswerIsRead(t *testing.T) {
	const path = "/v1/chat/completions"
	g := newGateway(t, 64<<20)
	g.limitTo1(t)
	g.router.Queue.Length = -1
	g.answer = func(*http.Request) *http.Response {
		return upstreamAnswer("application/json", strings.NewReader(completionOf("hi")), -1)
	}
	w := &slowWriter{httptest.NewRecorder(), func() {
		if other := g.post(path, requests[path]); other.Code != http.StatusOK {
			t.Errorf("meanwhile: %d %s", other.Code, other.Body)
		}
	}}
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(requests[path]))
	r.Header.Set("Authorization", "Bearer "+g.secret)
	if g.send(w, r); w.Code != http.StatusOK {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	g.returned(t)
}

// A request that is sent again waits for its place as others do.
func TestRetryEntersTheQueueAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const path = "/v1/responses"
		g := newGateway(t, 64<<20)
		g.limitTo1(t)
		var sent []string
		g.answer = func(r *http.Request) *http.Response {
			body, _ := io.ReadAll(r.Body)
			time.Sleep(time.Second) // the next request is in the queue meanwhile
			name := map[bool]string{true: "first", false: "second"}[strings.Contains(string(body), "first")]
			if !strings.Contains(string(body), "reasoning_effort") {
				sent = append(sent, name)
				return upstreamAnswer("application/json", strings.NewReader(completionOf("hi")), -1)
			}
			sent = append(sent, name+" with effort")
			refusal := upstreamAnswer("application/json", strings.NewReader(
				`{"error":{"message":"Unsupported parameter: 'reasoning_effort'","param":"reasoning_effort"}}`), -1)
			refusal.StatusCode = http.StatusBadRequest
			return refusal
		}
		done := make(chan *httptest.ResponseRecorder)
		for _, body := range []string{
			`{"model":"m","input":"first","reasoning":{"effort":"low"}}`, `{"model":"m","input":"second"}`,
		} {
			go func() { done <- g.post(path, body) }()
			synctest.Wait()
		}
		for range 2 {
			if w := <-done; w.Code != http.StatusOK {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		}
		if got := strings.Join(sent, ", "); got != "first with effort, second, first" {
			t.Errorf("sent %s", got)
		}
		g.returned(t)
	})
}
