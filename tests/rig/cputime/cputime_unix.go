//go:build unix

// Package cputime tells tests and benchmarks how much of the processors they use: unlike
// the time that passes, it does not depend on what else runs.
package cputime

import (
	"syscall"
	"time"
)

// Used returns what the process has used of the processors.
func Used() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
