// Package memory bounds the memory for requests: a [Budget] of bytes, shared by keys and
// accounts.
package memory

import (
	"math"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// unknownMemory is the assumed memory of an unknown machine, in bytes.
const unknownMemory = 1 << 30

// Limit returns Go's memory limit in bytes, and whether GOMEMLIMIT or the program has set one. This
// package does not change the limit: it belongs to the process.
func Limit() (bytes int64, inForce bool) {
	limit := debug.SetMemoryLimit(-1)
	return limit, limit < math.MaxInt64
}

// Available returns the memory available to this process in bytes: the smallest of its
// cgroup's limit (v1 or v2), the machine's memory and Go's memory limit.
func Available() int64 {
	smallest, known := Limit()
	for _, limit := range []memlimit.Provider{memlimit.FromCgroup, memlimit.FromSystem} {
		if n, err := limit(); err == nil && n > 0 {
			smallest, known = int64(min(uint64(smallest), n)), true
		}
	}
	if !known {
		return unknownMemory
	}
	return smallest
}
