package procs

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"
)

// feed measures n times, each an interval after the last, in which the process used this
// share of a core.
func feed(g *governor, n int, share float64, requests int64, waiting uint64) {
	for range n {
		g.measure(g.at.Add(interval), g.used+time.Duration(share*float64(interval)), requests, waiting)
	}
}

func TestGovernor(t *testing.T) {
	var sets []int
	g := governor{all: 8, set: func(n int) { sets = append(sets, n) }}
	waiting := uint64(0)
	step := func(what string, n int, share float64, requests int64, want ...int) {
		t.Helper()
		sets = nil
		if feed(&g, n, share, requests, waiting); !slices.Equal(sets, want) {
			t.Errorf("%s: GOMAXPROCS was set to %v, want %v", what, sets, want)
		}
	}
	g.measure(time.Unix(1, 0), time.Hour, 1, 0) // the CPU time of what was before does not count
	step("a few calm measurements", calmFor-1, 0.1, 1)
	step("work in between", 1, 0.7, 1)
	step("a calm process", calmFor, 0.1, 1, 1)
	step("the same", 100, 0.8, 1)
	step("a burst", 1, 0.9, 1, 8)
	step("work on more cores", 100, 3, 1)
	step("medium work", 100, 0.8, 1)
	step("calm again", 100, 0.6, 1, 1)
	waiting = 1
	step("a few crowded measurements", crowded-1, 0.3, 1)
	step("other processes use the core", 1, 0.3, 1, 8)
	step("the same, later", 100, 0.3, 1)
	waiting = 0
	step("a core of its own", calmFor, 0.3, 1, 1)
	if g.quiet != 0 {
		t.Errorf("%d quiet measurements while a request runs", g.quiet)
	}
	step("no requests", linger, 0, 0)
	if g.quiet != linger {
		t.Errorf("%d quiet measurements, want %d", g.quiet, linger)
	}
	sets = nil
	if g.release(); !slices.Equal(sets, []int{8}) {
		t.Errorf("release set GOMAXPROCS to %v", sets)
	}
}

// TestAdapt runs requests in a process with several Ps: an idle one gets one P, a busy one
// gets them back, and at the end GOMAXPROCS is as before.
func TestAdapt(t *testing.T) {
	before := runtime.GOMAXPROCS(4)
	defer runtime.GOMAXPROCS(before)
	t.Setenv("GOMAXPROCS", "")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { Adapt(ctx); close(done) }()
	Begin()
	await(t, 1, func() { time.Sleep(interval) })
	if n := Most(); n != 4 {
		t.Errorf("the busy process has %d Ps, want 4", n)
	}
	await(t, 4, func() {
		for end := time.Now().Add(interval); time.Now().Before(end); { //nolint:revive // work
		}
	})
	await(t, 1, func() { time.Sleep(interval) })
	End()
	await(t, 4, func() { time.Sleep(interval) })
	Begin()
	await(t, 1, func() { time.Sleep(interval) })
	cancel()
	<-done
	if n := runtime.GOMAXPROCS(0); n != 4 || Most() != 4 {
		t.Errorf("GOMAXPROCS is %d and at most %d at the end, want 4", n, Most())
	}
	ctx, cancel = context.WithCancel(t.Context())
	done = make(chan struct{})
	go func() { Adapt(ctx); close(done) }()
	await(t, 1, func() { time.Sleep(interval) }) // for the request that runs
	cancel()
	<-done
	End()
}

// await repeats step until GOMAXPROCS is n.
func await(t *testing.T, n int, step func()) {
	t.Helper()
	for begin := time.Now(); runtime.GOMAXPROCS(0) != n; step() {
		if time.Since(begin) > time.Minute {
			t.Fatalf("GOMAXPROCS is %d, want %d", runtime.GOMAXPROCS(0), n)
		}
	}
}
