package cluster

import "time"

// Reading is a reading of the clocks of an edge. One that the machine does not have is 0.
type Reading struct {
	Monotonic time.Duration
	Boot      time.Duration // goes on while the machine is suspended
	Wall      time.Duration // goes on, too, but may be set
}

// start is when the monotonic clock is 0.
var start = time.Now()

// readClocks reads the clocks of the machine.
func readClocks() Reading {
	now := time.Now()
	return Reading{Monotonic: now.Sub(start), Boot: bootTime(), Wall: time.Duration(now.UnixNano())}
}

// maxGap is the maximum of the time between two looks at the clocks, as long as the program runs.
const maxGap = 5 * time.Second

// gap reports whether the machine may have stood still between two looks. The wall clock, if it alone has
// gone on, may have been set back since.
func (r Reading) gap(earlier Reading) bool { return max(r.since(earlier), earlier.since(r)) > maxGap }

// since returns the time between two readings.
func (r Reading) since(earlier Reading) time.Duration {
	return max(r.Monotonic-earlier.Monotonic, r.Boot-earlier.Boot, r.Wall-earlier.Wall)
}
