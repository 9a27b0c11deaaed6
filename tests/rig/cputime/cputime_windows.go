package cputime

import (
	"time"

	"golang.org/x/sys/windows"
)

// Used returns the CPU time that the process has used, in user and kernel mode.
func Used() time.Duration {
	var created, exited, kernel, user windows.Filetime
	_ = windows.GetProcessTimes(windows.CurrentProcess(), &created, &exited, &kernel, &user) // fails only without access
	return ticks(kernel) + ticks(user)
}

// ticks converts a duration in units of 100 ns.
func ticks(t windows.Filetime) time.Duration {
	return time.Duration(int64(t.HighDateTime)<<32|int64(t.LowDateTime)) * 100
}
