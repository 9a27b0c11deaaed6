//go:build unix

// Package cputime measures the CPU time of a test.
package cputime

import (
	"syscall"
	"time"
)

// Used returns the CPU time that the process has used, in user and kernel mode.
func Used() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // fails only for an invalid argument
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
