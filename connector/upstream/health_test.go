package upstream

import (
	"io"
	"log/slog"
	"net/http"
	"reflect"
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

// A model server that fails is asked again after pauses that grow, never twice at a
// time, and one that takes long stays what it was.
func TestProberPauses(t *testing.T) {
	p := NewProber(slog.New(slog.DiscardHandler))
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
	if state, _ := u.State(); state != StateDown {
		t.Error(state)
	}
}

// What an answer costs beside the relaying, while all is well.
func BenchmarkHealthOfAnAnswer(b *testing.B) {
	p, u := NewProber(slog.New(slog.DiscardHandler)), &Server{Name: "box"}
	p.note(u, link.UpstreamReport{Name: "box", Reachable: true}, nil)
	b.ReportAllocs()
	for b.Loop() {
		p.answered(u, http.StatusOK)
	}
}
