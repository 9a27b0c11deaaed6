//go:build !linux

package cluster

import "time"

// bootTime returns 0: there is only the wall clock.
func bootTime() time.Duration { return 0 }
