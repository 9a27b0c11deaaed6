package memory

import (
	"math"
	"runtime/debug"
	"testing"
)

// Available returns at most Go's limit, if there is one.
func TestAvailable(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64))
	machine := Available()
	if _, inForce := Limit(); inForce || machine <= 0 || machine == math.MaxInt64 {
		t.Errorf("without a limit: %d, a limit is in force: %t", machine, inForce)
	}
	const limit = 30 << 20
	debug.SetMemoryLimit(limit)
	if got := Available(); got != limit {
		t.Errorf("with a limit of 30 MiB: %d", got)
	}
	debug.SetMemoryLimit(machine + 1)
	if got := Available(); got != machine {
		t.Errorf("with a limit of more than the machine has: %d of %d", got, machine)
	}
}
