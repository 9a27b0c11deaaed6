package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// idleLook is the interval at which the connector is checked for being idle.
	idleLook = 15 * time.Second
	// idleWaste is the growth in bytes since the last release that is worth another one.
	idleWaste = 1 << 20
)

// release returns memory to the system when no request has run or ended between two
// checks. The garbage collector runs rarely under load (see main), and not at all
// without requests.
func (r *runner) release(ctx context.Context) {
	ticks := time.NewTicker(idleLook)
	defer ticks.Stop()
	var before, needed uint64
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		s := r.agent.Status()
		ended := s.Served + s.Failed
		idle := s.Running == 0 && ended == before
		before = ended
		if !idle || heapBytes() < needed+idleWaste {
			continue
		}
		debug.FreeOSMemory()
		needed = heapBytes()
	}
}

// heapBytes returns the bytes that Go has obtained from the system and not released.
func heapBytes() uint64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() - samples[1].Value.Uint64()
}
