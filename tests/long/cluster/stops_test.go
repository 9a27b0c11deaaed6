//go:build linux

package cluster

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

// drained: each edge drains, and stops once its connectors are elsewhere. No request fails, at
// the edge that drains neither.
func drained(t *testing.T, s *system) {
	for _, e := range s.edges {
		rest := s.others(e)
		l := s.startLoad(t, s.edges, nil)
		l.more(t, 20)
		began := time.Now()
		e.Manage(t, http.MethodPost, "/edges/"+e.name+"/drain", struct{}{}, nil)
		s.settled(t, rest...)
		t.Logf("%s: two tunnels elsewhere after %.1f s", e.name, time.Since(began).Seconds())
		l.more(t, 50)
		l.none(t)
		l = s.startLoad(t, rest, nil)
		l.more(t, 20)
		e.Process.Signal(t, syscall.SIGTERM)
		if code := e.Process.WaitExit(t, patience); code != 0 {
			t.Errorf("%s: exit code %d", e.name, code)
		}
		e.restart(t)
		s.well(t)
		l.none(t)
	}
}

// restarted: each edge is stopped and started. No request at another edge fails. Streams of its
// own clients come to their end, wherever they run, and so do those of others that run over it.
func restarted(t *testing.T, s *system) {
	for _, e := range s.edges {
		rest := s.others(e)
		own, others := s.streams(t, "own", e), s.streams(t, "slow", rest...)
		l := s.startLoad(t, rest, nil)
		l.more(t, 20)
		e.Process.Signal(t, syscall.SIGTERM)
		time.Sleep(2 * time.Second) // a peer whose connection ends is noticed meanwhile
		own.whole(t, "a stream at "+e.name)
		time.Sleep(2 * time.Second) // longer than a gateway without requests of its own takes to stop
		others.whole(t, "a stream while "+e.name+" stops")
		s.settled(t, rest...)
		if code := e.Process.WaitExit(t, patience); code != 0 {
			t.Errorf("%s: exit code %d", e.name, code)
		}
		e.restart(t)
		s.well(t)
		l.none(t)
	}
}

// streams run until they are released.
type streams struct {
	all     []*harness.Stream
	release chan struct{}
}

// streams opens a stream of each connector at each of these edges. No other one has the model.
func (s *system) streams(t *testing.T, model string, edges ...*edge) streams {
	t.Helper()
	o := streams{release: make(chan struct{})}
	s.up.Handle(model, upstream.SlowTokens(20*time.Millisecond, o.release))
	before := s.up.Running()
	for _, e := range edges {
		for i := range s.boxes {
			o.all = append(o.all, e.Client(t, s.key).Stream(t, harness.Chat(fmt.Sprint(model, "-", i), `,"stream":true`)))
		}
	}
	s.up.WaitRunning(t, before+len(o.all))
	return o
}

// whole ends the streams, of which nothing may be missing.
func (o streams) whole(t *testing.T, what string) {
	t.Helper()
	close(o.release)
	for _, stream := range o.all {
		if text, err := stream.Rest(); err != nil || !strings.HasSuffix(text, upstream.Done) {
			t.Errorf("%s ends with %q, %v", what, text[max(0, len(text)-200):], err)
		}
	}
}
