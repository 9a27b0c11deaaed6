package upstream

import (
	"context"
	"io"
	"net"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

// listing is a model server whose answer to GET /v1/models a test changes.
type listing struct {
	asked  atomic.Int64
	status atomic.Int64
	body   atomic.Value // string
}

// upstreamAt is the upstream at a plain base URL.
func upstreamAt(t *testing.T, base string) *Server {
	t.Helper()
	return newServer("box", baseURL(base), nil)
}

func newListing(t *testing.T, body string) (l *listing, url string) {
	l = &listing{}
	l.status.Store(http.StatusOK)
	l.body.Store(body)
	return l, serveBox(t, l.ServeHTTP).URL
}

func (l *listing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1/models" {
		l.asked.Add(1)
	}
	w.WriteHeader(int(l.status.Load()))
	io.WriteString(w, l.body.Load().(string))
}

func box(reachable bool, models ...string) link.UpstreamReport {
	return link.UpstreamReport{Name: "box", Reachable: reachable, Models: models}
}

func TestInspect(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		body   string
		want   link.UpstreamReport
	}{
		{"models", 200, `{"data": [{"id": "x"}, {"id": ""}]}`, box(true, "x")},
		{
			"llama.cpp, which answers to any name", 200, `{"data": [{"id": "/m/x.gguf", "owned_by": "llamacpp"}]}`,
			link.UpstreamReport{Name: "box", Reachable: true, Models: []string{"/m/x.gguf"}, Open: true},
		},
		{
			"llama.cpp as a router", 200, `{"data": [{"id": "x", "owned_by": "llamacpp", "status": {"value": "loaded"}}]}`,
			box(true, "x"),
		},
		{
			"windows", 200, `{"data": [{"id": "y"}, {"id": "x", "max_model_len": 8192}]}`,
			link.UpstreamReport{
				Name: "box", Reachable: true, Models: []string{"x", "y"}, Windows: map[string]int{"x": 8192},
				Strict: true,
			},
		},
		{"no API there", 404, `no`, box(true)},
		{"loading", 503, `{}`, box(true)},
		{"a page", 200, `<html>`, box(true)},
		{"texts", 200, `{"data": ["x"]}`, box(true)},
	} {
		server, url := newListing(t, tt.body)
		server.status.Store(int64(tt.status))
		u := upstreamAt(t, url)
		NewProber(quiet).ask(t.Context(), u)
		if got := u.health.report.Load(); got == nil || !reflect.DeepEqual(*got, tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
	u := upstreamAt(t, "http://127.0.0.1:1")
	NewProber(quiet).ask(t.Context(), u)
	if got := u.health.report.Load(); got == nil || got.Reachable {
		t.Errorf("nothing listens there: %+v", got)
	}
}

// After failures, a model server is checked with growing pauses, whatever its requests do.
func TestProberPauses(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var asked atomic.Int64
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			asked.Add(1)
			conn.Close()
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		p, u := NewProber(quiet), upstreamAt(t, "http://"+listener.Addr().String())
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		start := time.Now()
		running.Go(func() { p.Run(ctx, func() Set { return Set{"box": u} }) })
		for i, pauses := range []time.Duration{1, 3, 7, 15, 31, 61, 91} {
			time.Sleep(time.Until(start.Add(pauses * 890 * time.Millisecond))) // they vary by 10 %
			if got := asked.Load(); got != int64(i)+1 {
				t.Errorf("asked %d times within %v", got, time.Since(start))
			}
		}
		for range 100 {
			p.failed(u, link.ErrUpstreamDown)
		}
		time.Sleep(time.Second / 2)
		if got := asked.Load(); got != 7 {
			t.Errorf("asked %d times after failed requests", got)
		}
		if state, _ := u.State(); state != StateDown {
			t.Error(state)
		}
	})
}

// A model server that starts after its connector is reported as soon as it has served a
// request, whatever the pause of the checks is. Then it is asked for its models.
func TestAnswerEndsThePause(t *testing.T) {
	_, url := newListing(t, `{}`)
	u, p := upstreamAt(t, url), NewProber(quiet)
	p.note(u, box(false), ErrNotConnected)
	changed := p.Changed()
	NewProxy(Set{"box": u}, Options{Logger: quiet, Prober: p}).ServeHTTP(&recorder{},
		tunnelRequest(t.Context(), "POST", "/v1/embeddings", "{}"))
	<-changed
	if state, _ := u.State(); state != StateReachable || <-u.health.doubts != 0 {
		t.Errorf("after an answer the server is %s", state)
	}
}

// While models are not loaded, an answer may mean that one is loaded now: its server is asked again. The gateway can
// ask for that at any time.
func TestAskAgain(t *testing.T) {
	server, url := newListing(t, `{"data": [{"id": "x", "status": {"value": "unloaded"}}]}`)
	p, u := NewProber(quiet), upstreamAt(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	p.ask(ctx, u)
	p.answered(u, http.StatusOK)
	if interval := <-u.health.doubts; interval != missingInterval || u.health.report.Load().Windows != nil {
		t.Errorf("a model is not loaded: asked after %v, %+v", interval, u.health.report.Load())
	}
	server.body.Store(`{"data": [{"id": "x", "status": {"value": "loaded"}, "meta": {"n_ctx": 4096}}]}`)
	changed := p.Changed()
	running.Go(func() { p.watch(ctx, u) }) // asks at once
	<-changed
	if got := u.health.report.Load().Windows["x"]; got != 4096 {
		t.Errorf("window of the loaded model: %d", got)
	}
	server.body.Store(`{"data": [{"id": "y"}]}`)
	changed = p.Changed()
	for waiting := true; waiting; { // a doubt during a question has no effect
		p.Recheck(u)
		p.answered(u, http.StatusOK)
		select {
		case <-changed:
			waiting = false
		case <-time.After(time.Millisecond):
		}
	}
	if _, models := u.State(); !slices.Equal(models, []string{"y"}) || server.asked.Load() > 4 {
		t.Errorf("asked %d times, models %q", server.asked.Load(), models)
	}
	cancel()
	running.Wait()
	p.answered(u, http.StatusOK)
	select {
	case interval := <-u.health.doubts:
		t.Errorf("all models are loaded: asked after %v", interval)
	default:
	}
}

// A router lists no window for a model that it has unloaded. The last one stays until it lists another, drops the model
// or is down. A model has its window under its aliases, too.
func TestWindowOfUnloadedModel(t *testing.T) {
	const (
		loaded   = `{"data": [{"id": "x", "aliases": ["a"], "status": {"value": "loaded"}, "meta": {"n_ctx": 4096}}]}`
		smaller  = `{"data": [{"id": "x", "aliases": ["a"], "status": {"value": "loaded"}, "meta": {"n_ctx": 2048}}]}`
		unloaded = `{"data": [{"id": "x", "aliases": ["a"], "status": {"value": "unloaded"}}]}`
		other    = `{"data": [{"id": "y", "status": {"value": "unloaded"}}]}`
		unknown  = `{"data": [{"id": "x", "aliases": ["a"], "status": {"value": "loaded"}}]}`
	)
	server, url := newListing(t, "")
	p, u := NewProber(quiet), upstreamAt(t, url)
	for i, step := range []struct {
		list string // "": the server is down
		want int
	}{
		{unloaded, 0},
		{loaded, 4096},
		{unloaded, 4096},
		{unloaded, 4096},
		{smaller, 2048},
		{unloaded, 2048},
		{other, 0},
		{unloaded, 0},
		{loaded, 4096},
		{unknown, 0},
		{loaded, 4096},
		{"", 0},
		{unloaded, 0},
	} {
		if server.body.Store(step.list); step.list == "" {
			p.failed(u, link.ErrUpstreamDown)
			continue
		}
		if err := p.ask(t.Context(), u); err != nil {
			t.Fatal(err)
		}
		got := u.health.report.Load()
		if got.Windows["x"] != step.want || got.Windows["a"] != step.want || len(got.Windows) == 0 != (step.want == 0) {
			t.Errorf("step %d: windows %v, want %d", i, got.Windows, step.want)
		}
		if step.list != other && !slices.Equal(got.Models, []string{"a", "x"}) {
			t.Errorf("step %d: models %q", i, got.Models)
		}
		if err := (link.Report{Upstreams: []link.UpstreamReport{*got}}).Check(); err != nil {
			t.Errorf("step %d: %v", i, err)
		}
	}
}
