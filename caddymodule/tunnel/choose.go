package tunnel

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"
)

// Connector is the id of the connector that holds the session.
func (s *Session) Connector() string { return s.connector.ID }

// Active is how many requests run on the session now.
func (s *Session) Active() int { return int(s.active.Load()) }

// Faint tells whether the session's connector has missed two of its pings: it
// is likely to be dead, which is certain only after a longer time.
func (s *Session) Faint() bool { return s.pulse.faint() }

// pulse knows until when a connector is to ping.
type pulse struct {
	due atomic.Pointer[time.Time]
}

// beat is called at each ping, with the time until the next one.
func (p *pulse) beat(next time.Duration) {
	due := time.Now().Add(2*next + time.Second)
	p.due.Store(&due)
}

func (p *pulse) faint() bool { return time.Now().After(*p.due.Load()) }

// Choose returns the session of one of the connectors with the fewest requests,
// at random among equals. One that is faint, or has reported that its upstream is
// down, is chosen only if there is no other: either may be over. It does not wait.
func (h *Hub) Choose(connectorIDs []string, to Target, except []*Session) (*Session, bool) {
	var best *Session
	var doubtful bool
	least, equal := 0, 0
	for _, id := range connectorIDs {
		s, ok := h.Session(id)
		if !ok || slices.Contains(except, s) {
			continue
		}
		if len(connectorIDs) == 1 {
			return s, true
		}
		n, weak := s.Active(), s.Faint() || s.down(to)
		switch {
		case best == nil, doubtful && !weak, weak == doubtful && n < least:
			best, doubtful, least, equal = s, weak, n, 1
		case weak == doubtful && n == least:
			if equal++; rand.IntN(equal) == 0 {
				best = s
			}
		}
	}
	return best, best != nil
}

// WaitAny waits for up to d until one of the connectors has a session, and
// returns as [Hub.Wait] does.
func (h *Hub) WaitAny(ctx context.Context, connectorIDs []string, to Target, d time.Duration) (*Session, error) {
	if len(connectorIDs) == 1 {
		return h.Wait(ctx, connectorIDs[0], d)
	}
	if s, ok := h.Choose(connectorIDs, to, nil); ok {
		return s, nil
	}
	if d <= 0 {
		return nil, ErrOffline
	}
	waits, cancel := context.WithCancel(ctx)
	defer cancel()
	type arrived struct {
		session *Session
		err     error
	}
	first := make(chan arrived, len(connectorIDs))
	for _, id := range connectorIDs {
		go func() {
			s, err := h.Wait(waits, id, d)
			first <- arrived{s, err}
		}()
	}
	var last error = ErrOffline
	for range connectorIDs {
		a := <-first
		if a.err == nil {
			return a.session, nil
		}
		last = a.err
	}
	return nil, last
}
