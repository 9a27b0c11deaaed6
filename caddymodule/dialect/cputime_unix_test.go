//go:build unix

package dialect

import (
	"syscall"
	"time"
)

// cpuTime is what the process has used of the processors: unlike the time that
// passes, it does not depend on what else runs.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
