//go:build !unix

package link

import "time"

// cpuTime is not known here.
func cpuTime() time.Duration { return 0 }
