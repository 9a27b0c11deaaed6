// Package memory bounds the memory for requests: a [Budget] of bytes, shared by keys and
// accounts.
package memory

import (
	"math"
	"os"
	"runtime/debug"
	"sync"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// unknownMemory is assumed if the memory of the machine is unknown.
const unknownMemory = 1 << 30

// Available returns the memory available to this process in bytes: the smallest of its
// cgroup's limit (v1 or v2), the machine's memory and GOMEMLIMIT. It is determined once.
var Available = sync.OnceValue(available)

func available() int64 {
	smallest := uint64(math.MaxInt64)
	if os.Getenv(limitVariable) != "" {
		smallest = uint64(debug.SetMemoryLimit(-1)) // which reads it
	}
	for _, limit := range []memlimit.Provider{memlimit.FromCgroup, memlimit.FromSystem} {
		if n, err := limit(); err == nil && n > 0 {
			smallest = min(smallest, n)
		}
	}
	if smallest == math.MaxInt64 {
		return unknownMemory
	}
	return int64(smallest)
}

// limitVariable is the environment variable with Go's soft memory limit.
const limitVariable = "GOMEMLIMIT"

// overhead is the memory of a process in addition to its budget and the garbage from it:
// records, tunnels with their windows, caches.
const overhead = 128 << 20

// SetSoftLimit sets Go's soft memory limit to twice the budget, for live memory and
// garbage, plus 128 MiB for everything else. It is at most 90 % of the available memory.
// GOMEMLIMIT in the environment takes precedence.
func SetSoftLimit(budget int64) {
	if os.Getenv(limitVariable) == "" {
		debug.SetMemoryLimit(softLimit(budget, Available()))
	}
}

func softLimit(budget, available int64) int64 {
	most := available / 10 * 9
	if budget > (most-overhead)/2 {
		return most
	}
	return 2*budget + overhead
}
