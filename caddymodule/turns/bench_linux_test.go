package turns

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/postern-dev/postern/caddymodule/fair"
)

// benchWorld returns a scheduler of one connector with a number of lines.
func benchWorld(lines int, connectors ...string) (s *Scheduler, names []string) {
	s = New(func(string, string) (Deployment, bool) { return Deployment{Connectors: connectors}, true })
	for _, id := range connectors {
		s.SetConnector(benchConnector(id))
	}
	for i := range lines {
		names = append(names, fmt.Sprint("model-", i))
	}
	return s, names
}

func benchConnector(id string) Connector {
	return Connector{
		ID: id, Account: acme, MaxRequests: 1, Servers: []Server{{Name: "u"}},
		Resolve: func(name, _, _ string) (string, string, error) { return "u", name, nil },
	}
}

// benchRequest returns a request of one of 50 owners with four keys each.
func benchRequest(deployment string, i int) *Request {
	return &Request{
		Account: acme, Deployment: deployment, Length: 5000, Wait: time.Hour, ConnectWait: time.Hour, Arrived: time.Now(),
		Priority: Priority(i%3 - 1), Client: fair.Client{Owner: fmt.Sprint("owner-", i%50), Key: fmt.Sprint("key-", i%200)},
	}
}

// threadTime returns the CPU time of this thread: other programs do not count.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

// BenchmarkNext frees a place for which 2,000 requests wait in 200 lines of a connector.
func BenchmarkNext(b *testing.B) {
	s, names := benchWorld(200, "c")
	ctx, cancel := context.WithCancel(b.Context())
	granted := make(chan *Place, 1)
	var wg sync.WaitGroup
	ask := func(i int) {
		wg.Go(func() {
			if p, err := s.Wait(ctx, benchRequest(names[i%len(names)], i)); err == nil {
				granted <- p
			}
		})
	}
	waiting := func() (n int) {
		s.Lengths(func(_, _ string, _, waiting int) { n += waiting })
		return n
	}
	for i := range 2001 {
		ask(i)
	}
	for waiting() < 2000 {
		time.Sleep(time.Millisecond)
	}
	var all []time.Duration
	for i := 2001; b.Loop(); i++ {
		p := <-granted
		runtime.LockOSThread()
		begun := threadTime()
		p.Leave() // takes the lock and decides
		all = append(all, threadTime()-begun)
		runtime.UnlockOSThread()
		b.StopTimer()
		ask(i)
		for waiting() < 2000 {
			time.Sleep(10 * time.Microsecond)
		}
		b.StartTimer()
	}
	b.StopTimer()
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
	cancel()
	(<-granted).Leave()
	wg.Wait()
}

// BenchmarkReturn lets 20,000 connectors come back while 2,000 requests wait for them.
func BenchmarkReturn(b *testing.B) {
	ids := make([]string, 20000)
	for i := range ids {
		ids[i] = fmt.Sprint("connector-", i)
	}
	for b.Loop() {
		b.StopTimer()
		lines := make(map[string][]string)
		for i := range 200 { // each of a hundred connectors, which one other line has, too
			for j := range 200 {
				lines[fmt.Sprint("model-", i)] = append(lines[fmt.Sprint("model-", i)], ids[(i*100+j)%len(ids)])
			}
		}
		s := New(func(_, name string) (Deployment, bool) {
			return Deployment{Connectors: lines[name], LastOnline: time.Now()}, true
		})
		ctx, cancel := context.WithCancel(b.Context())
		var wg sync.WaitGroup
		for i := range 2000 {
			wg.Go(func() { _, _ = s.Wait(ctx, benchRequest(fmt.Sprint("model-", i%200), i)) })
		}
		for n := 0; n < 2000; time.Sleep(time.Millisecond) {
			n = 0
			s.Lengths(func(_, _ string, _, waiting int) { n += waiting })
		}
		order := rand.Perm(len(ids))
		b.StartTimer()
		for _, i := range order {
			s.SetConnector(benchConnector(ids[i]))
		}
		b.StopTimer()
		cancel()
		wg.Wait()
		b.StartTimer()
	}
}

// A request that need not wait allocates its place and no more.
func TestAllocations(t *testing.T) {
	s, names := benchWorld(1, "c1", "c2")
	q := benchRequest(names[0], 1)
	q.Affinity = 7
	if n := testing.AllocsPerRun(1000, func() {
		p, err := s.Wait(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		p.Answered()
		p.Leave()
	}); n > 2 {
		t.Errorf("%v allocations", n)
	}
}
