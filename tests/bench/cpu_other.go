//go:build !linux

package main

import (
	"errors"
	"time"
)

// cpuTime needs a clock that only Linux has.
func cpuTime(int) (time.Duration, error) {
	return 0, errors.New("the CPU time of processes can only be measured on Linux")
}
