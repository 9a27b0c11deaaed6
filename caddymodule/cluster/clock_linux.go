package cluster

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime returns the time since the machine has booted, including suspensions.
func bootTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
