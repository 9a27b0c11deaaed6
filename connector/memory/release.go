package memory

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// IdleLook is the interval at which [Release] checks whether memory can be returned.
const IdleLook = 15 * time.Second

// Release returns memory to the system after bursts, until ctx is done. The garbage of a
// burst otherwise stays until the next collection, which an idle process runs two minutes
// later. Release collects when due returns true. held is what Go has obtained from the
// system, and kept is the held memory after the last release, both in bytes.
func Release(ctx context.Context, due func(held, kept uint64) bool) {
	ticks := time.NewTicker(IdleLook)
	defer ticks.Stop()
	var kept uint64
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		if due(held(), kept) {
			debug.FreeOSMemory()
			kept = held()
		}
	}
}

// AfterBurst returns a due function for [Release] in a process that others share. It
// returns true if the held memory has doubled since the last release, and no collection has
// run since the last look: under load, Go collects and returns memory by itself.
func AfterBurst() func(held, kept uint64) bool {
	var before uint64
	return func(held, kept uint64) bool {
		cycles := read("/gc/cycles/total:gc-cycles")
		quiet := cycles == before
		before = cycles
		return quiet && held >= 2*kept
	}
}

// held returns the bytes that Go has obtained from the system and not returned.
func held() uint64 {
	return read("/memory/classes/total:bytes") - read("/memory/classes/heap/released:bytes")
}

// read returns a metric of Go's runtime.
func read(name string) uint64 {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
