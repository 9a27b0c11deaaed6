//go:build !linux

package main

import (
	"errors"
	"time"
)

// monotonic returns the wall clock, the only one that processes share here.
func monotonic() int64 { return time.Now().UnixNano() }

// cpuTime needs a clock that only Linux has.
func cpuTime(int) (time.Duration, error) {
	return 0, errors.New("the CPU time of processes can only be measured on Linux")
}
