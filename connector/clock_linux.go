package main

import "golang.org/x/sys/unix"

// monotonicMicroseconds returns the time of CLOCK_MONOTONIC, which systemd uses too.
func monotonicMicroseconds() int64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return 0
	}
	return t.Nano() / 1000
}
