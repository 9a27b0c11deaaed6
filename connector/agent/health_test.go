package agent

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/upstream"
)

// asks makes an agent check its upstreams in short intervals.
func asks(interval time.Duration) func(*instance) {
	return func(a *instance) { a.prober.Interval = interval }
}

// listing is a model server. Tests change its answer to GET /v1/models.
type listing struct {
	asked  atomic.Int64
	status atomic.Int64
	body   atomic.Value // string
}

func newListing(t *testing.T, body string) (l *listing, url string) {
	l = &listing{}
	l.status.Store(http.StatusOK)
	l.body.Store(body)
	server := httptest.NewServer(l)
	t.Cleanup(server.Close)
	return l, server.URL
}

func (l *listing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1/models" {
		l.asked.Add(1)
	}
	w.WriteHeader(int(l.status.Load()))
	io.WriteString(w, l.body.Load().(string))
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

// reported waits for a report.
func (s *fakeSession) reported(want ...link.UpstreamReport) {
	s.gateway.t.Helper()
	for deadline := time.After(patience); ; {
		select {
		case r := <-s.reports:
			if err := r.Check(); err != nil {
				s.gateway.t.Error(err)
			}
			if reflect.DeepEqual(r.Upstreams, want) {
				return
			}
		case <-deadline:
			s.gateway.t.Fatalf("waited %v for the report %+v", patience, want)
		}
	}
}

func box(reachable bool, models ...string) link.UpstreamReport {
	return link.UpstreamReport{Name: "box", Reachable: reachable, Models: models}
}

func TestAgentReportsModels(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	server, url := newListing(t, `{"data": [{"id": "b"}, {"id": "a"}, {"id": "b"}]}`)
	a := startAgent(t, g, url, asks(20*time.Millisecond))
	s := g.session()
	s.reported(box(true, "a", "b"))
	server.body.Store(`{"data": [{"id": "c"}]}`)
	s.reported(box(true, "c"))
	server.body.Store(`{"data": null}`) // like Ollama
	s.reported(link.UpstreamReport{Name: "box", Reachable: true, Models: []string{}})
	server.status.Store(http.StatusUnauthorized)
	s.reported(box(true))
	if u := a.Status().Upstreams[0]; u.State != upstream.StateReachable || u.Models != nil {
		t.Errorf("status %+v", u)
	}
	// The connector's own checks do not count as requests.
	if got := a.Status(); got.Served != 0 || got.Failed != 0 || len(got.Recent) != 0 ||
		len(got.Upstreams[0].Results) != 0 {
		t.Errorf("status counts the questions: %+v", got)
	}
	// The gateway of the next tunnel receives the report at once.
	g.hangUp()
	g.session().reported(box(true))
}

func TestAgentReportsAnUpstreamThatIsDown(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	_, url := newListing(t, `{"data": [{"id": "m"}]}`)
	a := startAgent(t, g, "http://127.0.0.1:1", asks(forever))
	s := g.session()
	s.reported(box(false))
	if text := a.log.String(); strings.Count(text, "model server is unreachable") != 1 {
		t.Errorf("log:\n%s", text)
	}
	if err := a.Reload(g.present(map[string]string{"box": url})); err != nil {
		t.Fatal(err)
	}
	s.reported(box(true, "m"))
}

// The gateway can ask for the models of an upstream. Names of other upstreams are ignored.
func TestGatewayAsksForModels(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	server, url := newListing(t, `{"data": [{"id": "a"}]}`)
	startAgent(t, g, url, asks(forever))
	s := g.session()
	s.reported(box(true, "a"))
	server.body.Store(`{"data": [{"id": "a"}, {"id": "b"}]}`)
	for _, upstream := range []string{"none", "", "box"} {
		if err := s.control.Send(link.Recheck{Upstream: upstream}); err != nil {
			t.Fatal(err)
		}
	}
	s.reported(box(true, "a", "b"))
}

// Requests change the state at once, without a check.
func TestRequestsShowHealth(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	server, _ := newListing(t, `{"data": [{"id": "m"}]}`)
	address := freeAddr(t)
	stop := serveAt(t, address, server)
	startAgent(t, g, "http://"+address, asks(forever))
	s := g.session()
	if _, err := s.roundTrip(post(t.Context(), "{}")); err != nil {
		t.Fatal(err)
	}
	s.reported(box(true, "m")) // an answer, and then the models
	stop()
	if _, err := s.roundTrip(post(t.Context(), "{}")); err == nil {
		t.Fatal("no connector")
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
