package upstream

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// seldomInterval is the least time between two lines of a seldom.
const seldomInterval = time.Second

// seldom logs at most one line a second of those that requests cause, with the number
// of lines left out before it. The zero value is ready.
type seldom struct {
	mu      sync.Mutex
	last    time.Time
	leftOut int // since the last line
}

// warn logs a line, or counts it.
func (s *seldom) warn(log *slog.Logger, message string, args ...any) {
	if !log.Enabled(context.Background(), slog.LevelWarn) {
		return
	}
	s.mu.Lock()
	now := time.Now()
	if !s.last.IsZero() && now.Sub(s.last) < seldomInterval {
		s.leftOut++
		s.mu.Unlock()
		return
	}
	leftOut := s.leftOut
	s.last, s.leftOut = now, 0
	s.mu.Unlock()
	if leftOut > 0 {
		args = append(args, "left_out", leftOut)
	}
	log.Warn(message, args...)
}
