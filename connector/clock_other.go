//go:build !linux

package main

// monotonicMicroseconds is of no use where there is no systemd.
func monotonicMicroseconds() int64 { return 0 }
