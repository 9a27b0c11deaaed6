package tunnel

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"
)

// Connector returns the id of the session's connector.
func (s *Session) Connector() string { return s.connector.ID }

// Active returns the number of running requests.
func (s *Session) Active() int { return int(s.active.Load()) }

// Suspect reports whether the connector has missed two pings: it is probably dead,
// but not yet considered lost.
func (s *Session) Suspect() bool { return s.heartbeat.suspect() }

// heartbeat tracks when the next ping of a connector is overdue.
type heartbeat struct {
	due atomic.Pointer[time.Time]
}

// beat records a ping. next is the time until the next one.
func (p *heartbeat) beat(next time.Duration) {
	due := time.Now().Add(2*next + time.Second)
	p.due.Store(&due)
}

func (p *heartbeat) suspect() bool { return time.Now().After(*p.due.Load()) }

// Choose returns the session with the fewest requests, at random among equals.
// Suspect sessions and those whose upstream was reported down are chosen only if
// there is no other: the report may be outdated. Choose does not wait.
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
		n, weak := s.Active(), s.Suspect() || s.down(to)
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

// Wait is [Hub.WaitAny] for one connector.
func (h *Hub) Wait(ctx context.Context, connectorID string, d time.Duration) (*Session, error) {
	return h.WaitAny(ctx, []string{connectorID}, Target{}, nil, d)
}

// WaitAny is [Hub.Choose], but waits up to d for one of the connectors to connect.
// It returns [ErrOffline] or the cause of ctx's end.
func (h *Hub) WaitAny(ctx context.Context, connectorIDs []string, to Target, except []*Session, d time.Duration) (*Session, error) {
	if s, ok := h.Choose(connectorIDs, to, except); ok {
		return s, nil
	}
	if d <= 0 {
		return nil, ErrOffline
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	arrived := make(chan struct{}, 1)
	defer h.leave(connectorIDs, arrived)
	for h.await(connectorIDs, arrived) {
		if s, ok := h.Choose(connectorIDs, to, except); ok { // may have connected before await
			return s, nil
		}
		select {
		case <-arrived:
		case <-timer.C:
			return nil, ErrOffline
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return nil, ErrOffline
}

// arrivals are the channels of the waiters for one connector.
type arrivals map[chan struct{}]struct{}

// await registers arrived to receive a value when one of the connectors connects or
// the hub closes. It reports whether the hub is open.
func (h *Hub) await(connectorIDs []string, arrived chan struct{}) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range connectorIDs {
		if h.arrivals[id] == nil {
			h.arrivals[id] = make(arrivals, 1)
		}
		h.arrivals[id][arrived] = struct{}{}
	}
	return !h.closed
}

// leave undoes await.
func (h *Hub) leave(connectorIDs []string, arrived chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range connectorIDs {
		if delete(h.arrivals[id], arrived); len(h.arrivals[id]) == 0 {
			delete(h.arrivals, id)
		}
	}
}
