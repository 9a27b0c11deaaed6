//go:build linux

package cluster

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

// hop sends requests to an edge without a tunnel of their connector.
func hop(t *testing.T, s *system) {
	legs := s.well(t)[s.boxes[0].ID]
	i := slices.IndexFunc(s.edges, func(e *edge) bool { return !slices.Contains(legs, e.name) })
	entry, local := s.edges[i], s.edges[(i+1)%len(s.edges)]
	t.Run("client leaves", func(t *testing.T) { leave(t, s, local, entry) })
	t.Run("large bodies", func(t *testing.T) { largeBodies(t, s, entry) })
	t.Run("slow readers", func(t *testing.T) { slowReaders(t, s, entry) })
}

// leave measures how long it takes until the model server notices that a client has left,
// before the first byte of the answer and after it.
func leave(t *testing.T, s *system, local, entry *edge) {
	silent := make(chan struct{})
	defer close(silent)
	s.up.Handle("slow", func(x *upstream.Exchange) {
		if strings.Contains(string(x.Request.Body), `"user":"streams"`) {
			upstream.SlowTokens(time.Hour, nil)(x)
			return
		}
		select {
		case <-silent:
		case <-x.Gone():
		}
	})
	for _, user := range []string{"streams", "waits"} {
		for _, at := range []*edge{local, entry} {
			var took []time.Duration
			client := at.Client(t, s.key)
			for range 20 {
				before := len(s.up.Gone("slow"))
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					a, err := client.Send(client.Request(ctx, t, http.MethodPost, "/v1/chat/completions", harness.Chat("slow-0", `,"stream":true,"user":"`+user+`"`)))
					if err == nil && a.Err == nil {
						t.Errorf("an answer for a client that has left: %+v", a)
					}
				}()
				s.up.WaitRunning(t, 1)
				time.Sleep(10 * time.Millisecond)
				left := time.Now()
				cancel()
				<-ended
				s.up.WaitRunning(t, 0)
				if gone := s.up.Gone("slow"); len(gone) == before+1 {
					took = append(took, gone[before].Sub(left))
				} else {
					t.Errorf("the model server has lost %d clients", len(gone)-before)
				}
			}
			slices.Sort(took)
			t.Logf("%s, %s: noticed after %v (median), %v (at most)", map[*edge]string{local: "local", entry: "hop"}[at], user, took[len(took)/2], took[len(took)-1])
		}
	}
}

// largeBodies sends bodies of almost the largest size, two at a time.
func largeBodies(t *testing.T, s *system, entry *edge) {
	long := strings.Repeat("0123456789abcdef", 31<<16)
	client := entry.Client(t, s.key)
	var running sync.WaitGroup
	began := time.Now()
	for range 2 {
		running.Go(func() {
			a, err := client.Send(client.Request(t.Context(), t, http.MethodPost, "/v1/chat/completions", harness.Chat("m-0", `,"user":"`+long+`"`)))
			if err != nil || a.Status != http.StatusOK || a.Err != nil {
				t.Errorf("status %d, %v, %v: %.200s", a.Status, err, a.Err, a.Body)
			}
		})
	}
	running.Wait()
	t.Logf("two bodies of 31 MiB took %.1f s", time.Since(began).Seconds())
	if body := s.up.Last(t).Body; !strings.Contains(string(body), long) {
		t.Errorf("the model server has %d bytes of another body", len(body))
	}
}

// slowReaders opens streams that are not read, until all buffers on their way are full. Other
// requests for the same connector are answered meanwhile.
func slowReaders(t *testing.T, s *system, entry *edge) {
	const readers = 64
	text := upstream.Delta("slow", strings.Repeat("x", 16<<10))
	s.up.Handle("slow", func(x *upstream.Exchange) {
		x.Stream()
		for {
			select {
			case <-x.Gone():
				return
			default:
				x.Chunk(text)
			}
		}
	})
	var streams []*harness.Stream
	for range readers {
		streams = append(streams, entry.Client(t, s.key).Stream(t, harness.Chat("slow-0", `,"stream":true`)))
	}
	s.up.WaitRunning(t, readers)
	l := s.startLoad(t, s.edges, func(_ *edge, box *harness.Connector) bool { return box == s.boxes[0] })
	l.more(t, 300)
	l.none(t)
	for _, stream := range streams {
		stream.Close()
	}
	s.up.WaitRunning(t, 0)
}
