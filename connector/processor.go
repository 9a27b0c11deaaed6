package main

import (
	"context"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/connector/wait"
)

const (
	// processorInterval is the interval at which the use of processors is measured.
	processorInterval = 10 * time.Second
	// fullUse is the use from which processors count as full.
	fullUse = 0.8
	// processorPause is the minimum time between two log entries about full processors.
	processorPause = time.Hour
	processorFix   = "set GOMAXPROCS=2 or more in the connector's environment"
)

// useOneProcessor limits the connector to one processor, unless GOMAXPROCS is set. That saves a fifth of its CPU time:
// each event of a stream would otherwise wake threads that sleep in between.
func useOneProcessor() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
}

// processors notices that the connector uses nearly all of its processors, although the machine has more.
type processors struct {
	used   time.Duration // CPU time of the process
	at     time.Time     // of used
	logged time.Time
	full   atomic.Bool
}

// measure records the CPU time of the process, and reports whether to log that the processors are full.
func (p *processors) measure(used time.Duration, now time.Time, usable int) (log bool) {
	full := !p.at.IsZero() && usable < runtime.NumCPU() &&
		float64(used-p.used) >= fullUse*float64(usable)*float64(now.Sub(p.at))
	p.used, p.at = used, now
	p.full.Store(full)
	if log = full && now.Sub(p.logged) >= processorPause; log {
		p.logged = now
	}
	return log
}

// watchProcessors measures the use of the processors until ctx ends.
func (r *runner) watchProcessors(ctx context.Context) {
	for {
		if r.processors.measure(processorTime(), time.Now(), runtime.GOMAXPROCS(0)) {
			r.logger.Warn("the connector has used its processor almost completely for 10 s", "fix", processorFix)
		}
		if wait.For(ctx, processorInterval) != nil {
			return
		}
	}
}
