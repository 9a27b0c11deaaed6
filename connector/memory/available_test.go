package memory

import (
	"runtime/debug"
	"testing"
)

// The memory is at most GOMEMLIMIT, if that is set.
func TestAvailable(t *testing.T) {
	t.Setenv(limitVariable, "")
	machine := available()
	const limit = 30 << 20
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(limit)) // as the runtime does when it starts
	if got := available(); got != machine {
		t.Errorf("a limit that the program has set changes the memory from %d to %d", machine, got)
	}
	t.Setenv(limitVariable, "30MiB")
	if got := available(); got != limit {
		t.Errorf("with GOMEMLIMIT=30MiB: %d", got)
	}
	t.Setenv(limitVariable, "off")
	debug.SetMemoryLimit(1<<63 - 1)
	if got := available(); got != machine {
		t.Errorf("with GOMEMLIMIT=off: %d of %d", got, machine)
	}
}
