// Package logs limits the rate of log lines that clients can cause.
package logs

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	// linesPerInterval bounds the lines of one sampler, for all sources together.
	linesPerInterval = 5
	lineInterval     = time.Second
)

// Sampler logs at most one line per second for each source K, and five in all. It counts
// the lines left out, and adds their number to the next line. The zero value is ready to
// use.
type Sampler[K comparable] struct {
	mu      sync.Mutex
	recent  []line[K] // of the last second
	leftOut int       // since the last line
}

// line is a logged line.
type line[K comparable] struct {
	source K
	at     time.Time
}

// Log logs a line about a source, or counts it. log must not be nil.
func (s *Sampler[K]) Log(log *slog.Logger, level slog.Level, source K, now time.Time, message string, args ...any) {
	ctx := context.Background()
	if !log.Enabled(ctx, level) {
		return
	}
	leftOut, ok := s.take(source, now)
	if !ok {
		return
	}
	if leftOut > 0 {
		args = append(args, "left_out", leftOut)
	}
	log.Log(ctx, level, message, args...)
}

// take reports whether a line may be logged, and how many lines were left out before it.
func (s *Sampler[K]) take(source K, now time.Time) (leftOut int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recent = slices.DeleteFunc(s.recent, func(l line[K]) bool {
		age := now.Sub(l.at)
		return age < 0 || age >= lineInterval // age < 0: the clock was set back
	})
	if len(s.recent) >= linesPerInterval ||
		slices.ContainsFunc(s.recent, func(l line[K]) bool { return l.source == source }) {
		s.leftOut++
		return 0, false
	}
	s.recent = append(s.recent, line[K]{source, now})
	leftOut, s.leftOut = s.leftOut, 0
	return leftOut, true
}
