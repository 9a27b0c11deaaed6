package main

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime returns the CPU time of all threads that a process has and had, in
// nanoseconds: finer than the hundredths of a second in /proc/PID/stat.
func cpuTime(pid int) (time.Duration, error) {
	// clock_getcpuclockid(3): the id of a process's clock is made of its pid
	// and CPUCLOCK_SCHED (2).
	id := int32(^pid)<<3 | 2
	var t unix.Timespec
	if err := unix.ClockGettime(id, &t); err != nil {
		return 0, fmt.Errorf("reading the CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}
