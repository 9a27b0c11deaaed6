// Package procs runs a process on one P while its requests leave most of a core unused.
//
// A request passes several goroutines at each end of a tunnel, and none of them runs for
// long. With more than one P (GOMAXPROCS), Go wakes another thread for each goroutine that
// becomes runnable, and that thread looks for more work before it sleeps again. In a
// process with little to do, this takes up to a third of the CPU time, and adds to the
// latency of each request. docs/performance.md has figures.
package procs

import (
	"context"
	"os"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

const (
	// interval is the time between two measurements, and so about how long a burst of
	// work has only one P.
	interval = 20 * time.Millisecond
	// busy and calm are shares of one core: the process gets all Ps above busy, and one
	// P when it was below calm for calmFor measurements.
	busy    = 0.85
	calm    = 0.65
	calmFor = 10
	// crowded is the number of measurements in a row with waiting goroutines after which the
	// process gets all Ps below busy, too: other processes use its core.
	crowded = 50
	// linger is the number of measurements without a request after which there are no
	// more, and the process gets all Ps.
	linger = 50
)

var (
	running atomic.Int64
	begun   = make(chan struct{}, 1)
	turn    = make(chan struct{}, 1) // holds a value while Adapt runs
	most    atomic.Int64             // Ps of the busy process while Adapt may change them, else 0
)

// Most returns the number of Ps that the process has when it is busy.
func Most() int {
	if n := most.Load(); n > 0 {
		return int(n)
	}
	return runtime.GOMAXPROCS(0)
}

// Begin is called at the beginning of each request of a tunnel, and End at its end.
func Begin() {
	if running.Add(1) == 1 {
		select {
		case begun <- struct{}{}:
		default:
		}
	}
}

// End ends what Begin began.
func End() { running.Add(-1) }

// Adapt sets GOMAXPROCS until ctx is done, and restores it then. It does nothing if the
// environment variable GOMAXPROCS is set. Of several calls, one is in effect at a time.
func Adapt(ctx context.Context) {
	if os.Getenv("GOMAXPROCS") != "" {
		return
	}
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return
	}
	if running.Load() > 0 { // since another call was in effect
		adapt(ctx)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-begun:
			adapt(ctx)
		}
	}
}

// adapt sets GOMAXPROCS while there are requests.
func adapt(ctx context.Context) {
	g := governor{all: runtime.GOMAXPROCS(0), set: func(n int) { runtime.GOMAXPROCS(n) }}
	if g.all == 1 {
		return
	}
	most.Store(int64(g.all))
	defer most.Store(0)
	defer g.release()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	g.measure(time.Now(), CPUTime(), running.Load(), runnable())
	for g.quiet < linger {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			g.measure(time.Now(), CPUTime(), running.Load(), runnable())
		}
	}
}

// governor decides how many Ps the process has.
type governor struct {
	all    int       // Ps of a busy process
	set    func(int) // sets GOMAXPROCS
	single bool      // the process has one P
	below  int       // measurements below calm in a row
	crowd  int       // measurements with waiting goroutines in a row
	quiet  int       // measurements without a request in a row
	at     time.Time // of the last measurement
	used   time.Duration
}

// measure continues with the CPU time that the process has used so far, and the number
// of running requests and of goroutines that wait for a P.
func (g *governor) measure(now time.Time, used time.Duration, requests int64, waiting uint64) {
	share := float64(used-g.used) / float64(max(now.Sub(g.at), 1))
	first := g.at.IsZero()
	g.at, g.used = now, used
	if g.quiet++; requests > 0 {
		g.quiet = 0
	}
	if g.crowd++; waiting == 0 {
		g.crowd = 0
	}
	if g.below++; first || share >= calm || g.crowd >= crowded {
		g.below = 0
	}
	switch {
	case g.single && (share > busy || g.crowd >= crowded):
		g.release()
	case !g.single && g.below == calmFor:
		g.single = true
		g.set(1)
	}
}

// release gives the process all Ps.
func (g *governor) release() {
	if g.single {
		g.single, g.below = false, 0
		g.set(g.all)
	}
}

// runnable returns the number of goroutines that wait for a P.
func runnable() uint64 {
	sample := [1]metrics.Sample{{Name: "/sched/goroutines/runnable:goroutines"}}
	metrics.Read(sample[:])
	return sample[0].Value.Uint64()
}
