//go:build !unix

package dialect

import "time"

var started = time.Now()

// cpuTime is the time that has passed, where the process's own is not known.
func cpuTime() time.Duration { return time.Since(started) }
