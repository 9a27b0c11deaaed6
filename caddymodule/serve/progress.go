package serve

import (
	"errors"
	"io"
	"time"
)

// A client must send a body, and take a whole answer, at this rate on average
// once the grace has passed: both stay in memory meanwhile. Standing still is
// Caddy's read_idle and write_idle to end.
const (
	leastProgress = 64 << 10 // bytes a minute
	progressGrace = time.Minute
)

// errTooSlow is why a client is cut that sends a body or takes a whole answer too
// slowly.
var errTooSlow = errors.New("the client is too slow")

// tooSlow reports whether n bytes since begun are less than leastProgress.
func tooSlow(begun time.Time, n int64) bool {
	late := time.Since(begun) - progressGrace
	return float64(n) < late.Minutes()*leastProgress
}

// steadyReader fails with errTooSlow when what it reads comes too slowly.
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
