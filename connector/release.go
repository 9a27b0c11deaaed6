package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// idleLook is the time between two checks whether the connector is idle.
	idleLook = 15 * time.Second
	// idleWaste is the growth in bytes since the last time that is worth a release.
	idleWaste = 1 << 20
)

// release gives back the memory that requests needed, when none has run or ended
// between two looks: under load the garbage collector runs rarely (see main),
// and without requests it has no reason to.
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

// heapBytes returns the bytes that Go has from the system and has not given back.
func heapBytes() uint64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() - samples[1].Value.Uint64()
}
