//go:build !linux

package cluster

import "time"

// bootTime returns 0: the wall clock has to do.
func bootTime() time.Duration { return 0 }
