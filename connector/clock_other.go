//go:build !linux

package main

// monotonicMicroseconds is unused without systemd.
func monotonicMicroseconds() int64 { return 0 }
