package tunnel

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

// held are requests that run on a session, as far as it counts them.
func held(t *testing.T, g *testGateway, id string, n int64) *Session {
	t.Helper()
	s, ok := g.Session(id)
	if !ok {
		t.Fatalf("%s has no session", id)
	}
	s.active.Store(n)
	s.beat(time.Hour) // on a slow machine, the test lasts longer than two pings
	return s
}

// report is a report of a connector about its only model server.
func report(s *Session, reachable bool) {
	s.report(link.Report{Upstreams: []link.UpstreamReport{{Name: s.hello.Upstreams[0], Reachable: reachable}}})
}

func TestChoose(t *testing.T) {
	g := newGateway(t, Options{})
	none := http.NotFoundHandler()
	ids := []string{"con_1", "con_2", "con_3", "con_none"}
	if _, ok := g.Choose(ids, Target{}, nil); ok {
		t.Error("chose one of none")
	}
	for _, id := range ids[:3] {
		g.connect(t, id, none)
	}
	one, two, three := held(t, g, "con_1", 5), held(t, g, "con_2", 3), held(t, g, "con_3", 7)
	choose := func(want *Session, except ...*Session) {
		t.Helper()
		if got, _ := g.Choose(ids, Target{}, except); got != want {
			t.Errorf("chose %v, want %v", got, want)
		}
	}
	choose(two)
	choose(one, two)
	choose(three, one, two)
	choose(nil, one, two, three)

	// One whose model server is down is the last choice, whatever it has.
	report(two, false)
	choose(one)
	choose(two, one, three)
	report(one, false)
	report(three, false)
	choose(two)
	report(two, true)

	// Among equals each has its share.
	report(one, true)
	report(three, true)
	for _, s := range []*Session{one, two, three} {
		s.active.Store(1)
	}
	times := map[*Session]int{}
	for range 3000 {
		s, _ := g.Choose(ids, Target{}, nil)
		times[s]++
	}
	for s, n := range times {
		if n < 800 || n > 1200 {
			t.Errorf("%s was chosen %d times of 3000", s.Connector(), n)
		}
	}
	for _, s := range []*Session{one, two, three} {
		s.active.Store(0)
	}
	if n := testing.AllocsPerRun(100, func() { g.Choose(ids, Target{}, nil) }); n != 0 {
		t.Errorf("choosing allocates %v times", n)
	}
}

// TestAffinity: requests with an affinity stay with one connector while it is hardly busier than
// the others, and come back to it.
func TestAffinity(t *testing.T) {
	g := newGateway(t, Options{})
	ids := []string{"con_1", "con_2", "con_3", "con_none"}
	var all []*Session
	for _, id := range ids[:3] {
		g.connect(t, id, http.NotFoundHandler())
		all = append(all, held(t, g, id, 0))
	}
	choose := func(affinity uint64, except ...*Session) *Session {
		s, _ := g.Choose(ids, Target{Affinity: affinity}, except)
		return s
	}
	times := map[*Session]int{}
	for affinity := range uint64(3000) {
		times[choose(affinity+1)]++
	}
	for s, n := range times {
		if n < 800 || n > 1200 {
			t.Errorf("%d conversations of 3000 are with %s", n, s.Connector())
		}
	}
	const affinity = 7
	favorite := choose(affinity)
	for range 20 {
		if choose(affinity) != favorite {
			t.Fatal("it does not stay")
		}
	}
	favorite.active.Store(1)
	if choose(affinity) != favorite {
		t.Error("it leaves for one request")
	}
	favorite.active.Store(2)
	second := choose(affinity)
	if second == favorite || choose(affinity) != second || choose(affinity, favorite) != second {
		t.Error("there is no second choice")
	}
	for _, s := range all {
		s.active.Store(2)
	}
	if choose(affinity) != favorite {
		t.Error("it does not come back")
	}
	report(favorite, false)
	if choose(affinity) != second {
		t.Error("it stays with one whose model server is down")
	}
	report(favorite, true)
	if n := testing.AllocsPerRun(100, func() { choose(affinity) }); n != 0 {
		t.Errorf("choosing allocates %v times", n)
	}
}

// In order, an earlier connector is chosen however busy it is, unless it was tried or is in doubt.
func TestInOrder(t *testing.T) {
	g := newGateway(t, Options{})
	ids := []string{"con_none", "con_2", "con_1"}
	for _, id := range ids[1:] {
		g.connect(t, id, http.NotFoundHandler())
	}
	first, second := held(t, g, "con_2", 50), held(t, g, "con_1", 0)
	choose := func(want *Session, except ...*Session) {
		t.Helper()
		if got, _ := g.Choose(ids, Target{InOrder: true}, except); got != want {
			t.Errorf("chose %v, want %v", got, want)
		}
	}
	choose(first)
	choose(second, first) // it was full
	choose(nil, first, second)
	report(first, false)
	choose(second)
	report(second, false)
	choose(first)
}

func TestWaitAny(t *testing.T) {
	t.Parallel()
	g := newGateway(t, Options{})
	ids := []string{"con_1", "con_2"}
	if _, err := g.WaitAny(t.Context(), ids, Target{}, nil, -1); !errors.Is(err, ErrOffline) {
		t.Errorf("without a wait: %v", err)
	}
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { cancel(gone) })
	if _, err := g.WaitAny(ctx, ids, Target{}, nil, patience); !errors.Is(err, gone) {
		t.Errorf("the client went away: %v", err)
	}
	var coming sync.WaitGroup
	coming.Go(func() {
		g.waitFor(t, 1)
		g.connect(t, "con_2", http.NotFoundHandler())
	})
	s, err := g.WaitAny(t.Context(), ids, Target{}, nil, patience)
	coming.Wait()
	if err != nil || s.Connector() != "con_2" {
		t.Fatalf("waited for %v, %v", s, err)
	}
	g.waitFor(t, 0)
}

// Requests wait for a lost connector only until that time after its loss, however many come, and after the hub's start
// for one that was never seen.
func TestWaitEnds(t *testing.T) {
	simulate(t, 10*time.Millisecond, func(t *testing.T, _ *network, g *testGateway, sockets []net.PacketConn) {
		const wait = 3 * time.Second
		waits := func(about string, want time.Duration) {
			t.Helper()
			start := time.Now()
			_, err := g.WaitAny(t.Context(), []string{"con_1", "con_2"}, Target{}, nil, wait)
			if got := time.Since(start); !errors.Is(err, ErrOffline) || (got-want).Abs() > 200*time.Millisecond {
				t.Errorf("%s: %v after %s, want %s", about, err, got, want)
			}
		}
		waits("after the start", wait)
		waits("later", 0)
		time.Sleep(time.Hour)
		waits("an hour later", 0)
		for i, id := range []string{"con_1", "con_2"} {
			c, err := g.dial(t, sockets[i], hello(id), http.NotFoundHandler())
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				_ = c.conn.Close(link.CloseNone, "")
				time.Sleep(10 * time.Second)
			}
		}
		s := g.mustSession(t, "con_2")
		g.setSilent(s, true) // the later loss of both
		time.Sleep(time.Second)
		waits("a second after the loss", wait-time.Second)
		s.close(link.CloseReplaced)
		synctest.Wait()
		waits("after the end of a silent tunnel", 0)
		c, err := g.dial(t, sockets[2], hello("con_1"), http.NotFoundHandler())
		if err != nil {
			t.Fatal(err)
		}
		_ = c.conn.Close(link.CloseNone, "")
		time.Sleep(time.Second)
		waits("after another loss", wait-time.Second)
	})
}
