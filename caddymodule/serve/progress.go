package serve

import (
	"errors"
	"io"
	"time"
)

// The minimum average rate at which a client must send a body or receive a whole
// answer after the grace period, because both stay in memory. Caddy's read_idle and
// write_idle handle clients that stall.
const (
	leastProgress = 64 << 10 // bytes a minute
	progressGrace = time.Minute
)

// errTooSlow is returned if a client sends a body or receives a whole answer too
// slowly.
var errTooSlow = errors.New("the client is too slow")

// tooSlow reports whether n bytes since begun are below the minimum rate.
func tooSlow(begun time.Time, n int64) bool {
	late := time.Since(begun) - progressGrace
	return float64(n) < late.Minutes()*leastProgress
}

// steadyReader fails with errTooSlow when its data arrives too slowly.
type steadyReader struct {
	r     io.Reader
	begun time.Time
	read  int64 // bytes
}

// Read implements io.Reader.
func (s *steadyReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.read += int64(n)
	if err == nil && tooSlow(s.begun, s.read) {
		return 0, errTooSlow
	}
	return n, err
}
