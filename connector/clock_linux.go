package main

import "golang.org/x/sys/unix"

// monotonicMicroseconds is CLOCK_MONOTONIC, as systemd compares it with its own.
func monotonicMicroseconds() int64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return 0
	}
	return t.Nano() / 1000
}
