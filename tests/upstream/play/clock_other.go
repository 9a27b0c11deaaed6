//go:build !linux

package play

import "time"

// Monotonic returns the wall clock, the only one that processes share here.
func Monotonic() int64 { return time.Now().UnixNano() }
