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

// restarted: each edge is stopped and started. No request at another edge fails, and streams
// that run over the edge come to their end.
func restarted(t *testing.T, s *system) {
	for _, e := range s.edges {
		rest := s.others(e)
		release := make(chan struct{})
		s.up.Handle("slow", upstream.SlowTokens(20*time.Millisecond, release))
		var streams []*harness.Stream
		for _, o := range rest {
			for i := range s.boxes {
				streams = append(streams, o.Client(t, s.key).Stream(t, harness.Chat(fmt.Sprint("slow-", i), `,"stream":true`)))
			}
		}
		s.up.WaitRunning(t, len(streams))
		l := s.startLoad(t, rest, nil)
		l.more(t, 20)
		e.Process.Signal(t, syscall.SIGTERM)
		s.settled(t, rest...)
		close(release)
		for _, stream := range streams {
			if text, err := stream.Rest(); err != nil || !strings.HasSuffix(text, upstream.Done) {
				t.Errorf("a stream while %s stops ends with %q, %v", e.name, text[max(0, len(text)-200):], err)
			}
		}
		if code := e.Process.WaitExit(t, patience); code != 0 {
			t.Errorf("%s: exit code %d", e.name, code)
		}
		e.restart(t)
		s.well(t)
		l.none(t)
	}
}
