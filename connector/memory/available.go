// Package memory bounds the memory of a process for requests: a [Budget] of bytes, of
// which each key and each account may have a share.
package memory

import (
	"math"
	"os"
	"runtime/debug"
	"sync"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// unknownMemory is the memory of a machine whose memory is unknown.
const unknownMemory = 1 << 30

// Available returns how many bytes of memory this process may have: the limit
// of its cgroup (v1 or v2), or the machine's memory if there is none or that is
// smaller. It is determined once.
var Available = sync.OnceValue(func() int64 {
	smallest := uint64(math.MaxInt64)
	for _, limit := range []memlimit.Provider{memlimit.FromCgroup, memlimit.FromSystem} {
		if n, err := limit(); err == nil && n > 0 {
			smallest = min(smallest, n)
		}
	}
	if smallest == math.MaxInt64 {
		return unknownMemory
	}
	return int64(smallest)
})

// overhead is the memory that a process has in addition to its budget and the
// garbage that comes from it: records, tunnels with their windows, caches.
const overhead = 128 << 20

// SetSoftLimit sets Go's soft memory limit, unless the environment has GOMEMLIMIT, to
// twice the budget, as about as much garbage as live memory comes up, and 128 MiB for
// everything else; at most 90 % of the available memory.
func SetSoftLimit(budget int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
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
