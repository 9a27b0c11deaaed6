//go:build !unix

package cputime

import "time"

var started = time.Now()

// Used returns the time that has passed, as that of the process is not known here.
func Used() time.Duration { return time.Since(started) }
