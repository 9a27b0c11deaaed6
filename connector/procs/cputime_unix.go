//go:build unix

package procs

import (
	"syscall"
	"time"
)

// CPUTime returns the CPU time that the process has used, in user and kernel mode.
func CPUTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // fails only for an invalid argument
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
