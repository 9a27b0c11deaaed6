package fair

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"
)

const (
	// linesPerInterval bounds the lines of one sampler, whatever causes them.
	linesPerInterval = 5
	lineInterval     = time.Second
)

// Sampler logs lines that strangers can cause: in a second one about each network
// (/24, /48) and five in all. The others are counted, and the next line has how
// many there were. The zero value is ready.
type Sampler struct {
	mu      sync.Mutex
	recent  []line // of the last second
	leftOut int    // since the last line
}

// line is one that was logged.
type line struct {
	network netip.Prefix
	at      time.Time
}

// Log logs a line about a client at an address, or counts it. log must not be nil.
func (s *Sampler) Log(log *slog.Logger, level slog.Level, from Networks, now time.Time, message string, args ...any) {
	ctx := context.Background()
	if !log.Enabled(ctx, level) {
		return
	}
	leftOut, ok := s.take(from.Widest(), now)
	if !ok {
		return
	}
	if leftOut > 0 {
		args = append(args, "left_out", leftOut)
	}
	log.Log(ctx, level, message, args...)
}

// take reports whether a line may be logged, and how many were left out before it.
func (s *Sampler) take(network netip.Prefix, now time.Time) (leftOut int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.recent[:0]
	seen := false
	for _, l := range s.recent {
		if age := now.Sub(l.at); age < 0 || age >= lineInterval {
			continue // age < 0: the clock was set back
		}
		kept = append(kept, l)
		seen = seen || l.network == network
	}
	s.recent = kept
	if seen || len(s.recent) >= linesPerInterval {
		s.leftOut++
		return 0, false
	}
	s.recent = append(s.recent, line{network, now})
	leftOut, s.leftOut = s.leftOut, 0
	return leftOut, true
}
