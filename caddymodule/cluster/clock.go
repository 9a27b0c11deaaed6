package cluster

import "time"

// Reading is a reading of the clocks of an edge. A clock that the machine lacks is 0.
type Reading struct {
	Monotonic time.Duration
	Boot      time.Duration // continues while the machine is suspended
	Wall      time.Duration // continues, too, but may be set
}

// start is when the monotonic clock is 0.
var start = time.Now()

// readClocks reads the clocks of the machine.
func readClocks() Reading {
	now := time.Now()
	return Reading{Monotonic: now.Sub(start), Boot: bootTime(), Wall: time.Duration(now.UnixNano())}
}

// maxGap is the maximum time between two readings of the clocks while the program runs.
const maxGap = 5 * time.Second

// gap reports whether the program or its machine may have stood still between two readings. It compares
// them in both directions: the wall clock, if it alone has continued, may have been set back since.
func (r Reading) gap(earlier Reading) bool { return max(r.since(earlier), earlier.since(r)) > maxGap }

// since returns the time between two readings.
func (r Reading) since(earlier Reading) time.Duration {
	return max(r.Monotonic-earlier.Monotonic, r.Boot-earlier.Boot, r.Wall-earlier.Wall)
}
