//go:build !linux

package main

// monotonicMicroseconds returns 0: only systemd uses it.
func monotonicMicroseconds() int64 { return 0 }
