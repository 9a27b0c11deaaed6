//go:build linux

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
)

// A load is requests at some edges for some models, one after the other at each edge for each
// model.
type load struct {
	stop    context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	answered int
	failed   []failure
}

type failure struct {
	edge, model  string
	began, ended time.Time
	err          error
}

// startLoad sends requests for the models that choose accepts.
func (s *system) startLoad(t *testing.T, edges []*edge, choose func(e *edge, box *harness.Connector) bool) *load {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	l := &load{stop: stop}
	for _, e := range edges {
		for i, box := range s.boxes {
			if choose == nil || choose(e, box) {
				client := e.Client(t, s.key)
				l.running.Go(func() { l.run(ctx, t, client, e.name, fmt.Sprint("m-", i)) })
			}
		}
	}
	t.Cleanup(stop)
	return l
}

func (l *load) run(ctx context.Context, t *testing.T, client *harness.Client, edge, model string) {
	for ctx.Err() == nil {
		f := failure{edge: edge, model: model, began: time.Now()}
		f.err = ask(context.WithoutCancel(ctx), t, client, model)
		f.ended = time.Now()
		l.mu.Lock()
		if f.err == nil {
			l.answered++
		} else {
			l.failed = append(l.failed, f)
		}
		l.mu.Unlock()
		time.Sleep(20 * time.Millisecond)
	}
}

// more waits until n more requests were answered.
func (l *load) more(t *testing.T, n int) {
	t.Helper()
	count := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.answered
	}
	want := count() + n
	harness.Poll(t, patience, "answers", func(context.Context) error {
		if got := count(); got < want {
			return fmt.Errorf("%d of %d", got, want)
		}
		return nil
	})
}

// end waits for the last answers, and returns the failures.
func (l *load) end(t *testing.T) []failure {
	t.Helper()
	l.stop()
	l.running.Wait()
	t.Logf("%d requests answered, %d failed", l.answered, len(l.failed))
	return l.failed
}

// none ends the load, of which nothing may have failed.
func (l *load) none(t *testing.T) {
	t.Helper()
	for i, f := range l.end(t) {
		if i < 5 {
			t.Errorf("%s at %s, from %s to %s: %v", f.model, f.edge, f.began.Format(clock), f.ended.Format(clock), f.err)
		}
	}
}

const clock = "15:04:05.000"

// A hook receives the events of the cluster.
type hook struct {
	url string

	mu     sync.Mutex
	events map[string][]string // of the connectors at home: ids by type
}

func newHook(t *testing.T, address string) *hook {
	t.Helper()
	h := &hook{events: map[string][]string{}}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var e struct {
			ID, Type string
			Data     struct {
				Name string `json:"connector_name"`
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
			t.Errorf("a post that is no event: %v", err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if strings.HasPrefix(e.Data.Name, "box-") && !slices.Contains(h.events[e.Type], e.ID) {
			h.events[e.Type] = append(h.events[e.Type], e.ID)
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	must(t, err)
	server.Listener.Close()
	server.Listener = l
	server.Start()
	t.Cleanup(server.Close)
	h.url = server.URL
	return h
}

// count returns how many events of a type there were.
func (h *hook) count(kind string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.events[kind])
}
