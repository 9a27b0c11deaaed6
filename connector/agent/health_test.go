package agent

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
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
func upstreamAt(t *testing.T, base string) *upstream {
	t.Helper()
	parsed, err := plainBase(base)
	if err != nil {
		t.Fatal(err)
	}
	return newUpstream("box", parsed, nil)
}

// serveAt serves h at an address until stop is called.
func serveAt(t *testing.T, address string, h http.Handler) (stop func()) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h}
	go server.Serve(listener)
	stop = func() { server.Close() }
	t.Cleanup(stop)
	return stop
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

// asks makes an agent ask its upstreams from the start, in short intervals.
func asks(interval time.Duration) func(*Agent) {
	return func(a *Agent) {
		a.prober.interval = interval
		for _, u := range *a.proxy.upstreams.Load() {
			u.health.next = time.Time{}
		}
	}
}

// reported waits for the report that says so.
func (s *fakeSession) reported(want ...link.UpstreamReport) {
	s.gateway.t.Helper()
	for deadline := time.After(10 * time.Second); ; {
		select {
		case r := <-s.reports:
			if err := r.Check(); err != nil {
				s.gateway.t.Error(err)
			}
			if reflect.DeepEqual(r.Upstreams, want) {
				return
			}
		case <-deadline:
			s.gateway.t.Fatalf("waited 10 s for the report %+v", want)
		}
	}
}

func box(reachable bool, models ...string) link.UpstreamReport {
	return link.UpstreamReport{Name: "box", Reachable: reachable, Models: models}
}

func TestAgentReportsModels(t *testing.T) {
	g := startGateway(t)
	server, url := newListing(t, `{"data": [{"id": "b"}, {"id": "a"}, {"id": "b"}]}`)
	a := startAgent(t, g, url, asks(20*time.Millisecond))
	s := g.session()
	s.reported(box(true, "a", "b"))
	server.body.Store(`{"data": [{"id": "c"}]}`)
	s.reported(box(true, "c"))
	server.body.Store(`{"data": null}`) // as Ollama has it
	s.reported(link.UpstreamReport{Name: "box", Reachable: true, Models: []string{}})
	server.status.Store(http.StatusUnauthorized)
	s.reported(box(true))
	if u := a.Status().Upstreams[0]; u.State != UpstreamReachable || u.Models != nil {
		t.Errorf("status %+v", u)
	}
	// Its own questions are no requests.
	if got := a.Status(); got.Served != 0 || got.Failed != 0 || len(got.Recent) != 0 || len(got.Upstreams[0].Results) != 0 {
		t.Errorf("status counts the questions: %+v", got)
	}
	// The next tunnel learns it at once.
	g.hangUp()
	g.session().reported(box(true))
}

func TestAgentReportsAnUpstreamThatIsDown(t *testing.T) {
	g := startGateway(t)
	_, url := newListing(t, `{"data": [{"id": "m"}]}`)
	a := startAgent(t, g, "http://127.0.0.1:1", asks(time.Hour))
	s := g.session()
	s.reported(box(false))
	if text := a.log.String(); strings.Count(text, "model server cannot be reached") != 1 {
		t.Errorf("log:\n%s", text)
	}
	if err := a.Reload(g.present(map[string]string{"box": url})); err != nil {
		t.Fatal(err)
	}
	s.reported(box(true, "m"))
}

// Requests show what the next question would: at once, and without one.
func TestRequestsShowHealth(t *testing.T) {
	g := startGateway(t)
	server, _ := newListing(t, `{"data": [{"id": "m"}]}`)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	stop := serveAt(t, address, server)
	startAgent(t, g, "http://"+address, nil)
	s := g.session()
	if _, err := s.roundTrip(post(t.Context(), "{}")); err != nil {
		t.Fatal(err)
	}
	s.reported(box(true, "m")) // an answer, and then its models
	stop()
	if _, err := s.roundTrip(post(t.Context(), "{}")); err == nil {
		t.Fatal("nobody is there")
	}
	s.reported(box(false))
	serveAt(t, address, server)
	if _, err := s.roundTrip(post(t.Context(), "{}")); err != nil {
		t.Fatal(err)
	}
	s.reported(box(true, "m"))
	before := server.asked.Load()
	for range 50 {
		if _, err := s.roundTrip(post(t.Context(), "{}")); err != nil {
			t.Fatal(err)
		}
	}
	if n := server.asked.Load(); n != before {
		t.Errorf("answers to requests made it ask %d times", n-before)
	}
}

func TestInspect(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		body   string
		want   link.UpstreamReport
	}{
		{"models", 200, `{"data": [{"id": "x"}, {"id": ""}]}`, box(true, "x")},
		{"llama.cpp, which answers to any name", 200, `{"data": [{"id": "/m/x.gguf", "owned_by": "llamacpp"}]}`, link.UpstreamReport{Name: "box", Reachable: true, Models: []string{"/m/x.gguf"}, Open: true}},
		{"llama.cpp as a router", 200, `{"data": [{"id": "x", "owned_by": "llamacpp", "status": {"value": "loaded"}}]}`, box(true, "x")},
		{"no API there", 404, `no`, box(true)},
		{"loading", 503, `{}`, box(true)},
		{"a page", 200, `<html>`, box(true)},
		{"texts", 200, `{"data": ["x"]}`, box(true)},
	} {
		server, url := newListing(t, tt.body)
		server.status.Store(int64(tt.status))
		u := upstreamAt(t, url)
		if got, err := u.inspect(t.Context()); err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, %v, want %+v", tt.name, got, err, tt.want)
		}
	}
	u := upstreamAt(t, "http://127.0.0.1:1")
	if got, err := u.inspect(t.Context()); err == nil || got.Reachable {
		t.Errorf("nobody there: %+v, %v", got, err)
	}
}

// A model server that fails is asked again after pauses that grow, never twice at a
// time, and one that takes long stays what it was.
func TestProberPauses(t *testing.T) {
	p := newProber(slog.New(slog.DiscardHandler))
	u := upstreamAt(t, "http://127.0.0.1:1")
	now := time.Now()
	if _, due := u.health.due(now); !due {
		t.Fatal("it is not asked at once")
	}
	if _, due := u.health.due(now); due {
		t.Error("it is asked twice at a time")
	}
	var pauses []string
	for range 7 {
		p.ask(t.Context(), u)
		pauses = append(pauses, time.Until(u.health.next).Round(time.Second).String())
		u.health.asking = true
	}
	for i, most := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		if d, _ := time.ParseDuration(pauses[i]); d < most*time.Second*8/10 || d > most*time.Second*12/10 {
			t.Errorf("pauses %v", pauses)
			break
		}
	}
	u.health.asking = false
	for range 100 { // requests that fail do not make it ask more often
		p.failed(u, link.CodeUpstreamDown)
	}
	if d := time.Until(u.health.next); d < 20*time.Second {
		t.Errorf("it is asked in %v", d)
	}
	if state, _ := u.health.state(); state != UpstreamDown {
		t.Error(state)
	}
}

// What an answer costs beside the relaying, while all is well.
func BenchmarkHealthOfAnAnswer(b *testing.B) {
	p, u := newProber(slog.New(slog.DiscardHandler)), &upstream{name: "box"}
	p.note(u, link.UpstreamReport{Name: "box", Reachable: true}, nil)
	b.ReportAllocs()
	for b.Loop() {
		p.answered(u, http.StatusOK)
	}
}
