package tunnel

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/scope"
	"github.com/postern-dev/postern/connector/link"
)

// Connector returns the id of the session's connector.
func (s *Session) Connector() string { return s.connector.ID }

// Active returns the number of running requests.
func (s *Session) Active() int { return int(s.active.Load()) }

// beat records a ping. next is the time until the next one.
func (s *Session) beat(next time.Duration) {
	due := time.Now().Add(2*next + time.Second)
	s.pingDue.Store(&due)
}

// suspect reports whether the connector has missed two pings: it is probably dead,
// but not yet considered lost.
func (s *Session) suspect() bool { return time.Now().After(*s.pingDue.Load()) }

// Choose returns the session with the fewest requests, at random among equals.
// Suspect sessions, and sessions with an upstream that was reported down, are chosen
// last: the report may be outdated. Choose does not wait.
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
		n, weak := s.Active(), s.suspect() || s.down(to)
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
	defer h.leave(arrived)
	h.await(connectorIDs, arrived)
	for {
		if s, ok := h.Choose(connectorIDs, to, except); ok { // may have connected before await
			return s, nil
		}
		select {
		case <-arrived:
		case <-timer.C:
			return nil, ErrOffline
		case <-h.closing.Done():
			return nil, ErrOffline
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// await registers arrived to receive a value when one of the connectors connects.
func (h *Hub) await(connectorIDs []string, arrived chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.arrivals[arrived] = connectorIDs
}

// leave undoes await.
func (h *Hub) leave(arrived chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.arrivals, arrived)
}

// Target is the target of a deployment: its public name, its upstream and its model
// there. The connector decides about empty fields.
type Target struct{ Name, Upstream, Model string }

// Resolve returns the upstream and the upstream's model id for a deployment. The
// deployment's own upstream and model have precedence, then the first of the
// connector's routes whose pattern matches the public name, then the connector's
// only upstream and the public name. Errors wrap [ErrNoRoute].
func (s *Session) Resolve(publicName, upstream, model string) (upstreamName, upstreamModel string, err error) {
	return resolve(s.connector.Name, s.offer.Load(), Target{publicName, upstream, model})
}

// resolve is [Session.Resolve] for a connector with this offer.
func resolve(connector string, offer *link.Update, to Target) (upstreamName, upstreamModel string, err error) {
	known, upstream := offer.Upstreams, to.Upstream
	if upstream != "" && !slices.Contains(known, upstream) {
		return "", "", fmt.Errorf("%w: deployment %q uses upstream %q, but connector %q has %s; change the deployment's upstream or add it to the connector's configuration",
			ErrNoRoute, to.Name, upstream, connector, strings.Join(known, ", "))
	}
	for _, r := range offer.Routes {
		if (upstream == "" || upstream == r.Upstream) && scope.Match(r.Model, to.Name) {
			return r.Upstream, cmp.Or(to.Model, r.UpstreamModel, to.Name), nil
		}
	}
	if upstream == "" {
		if len(known) != 1 {
			return "", "", fmt.Errorf("%w: connector %q has several upstreams (%s) and no route for %q; set the deployment's upstream or add a route to the connector's configuration",
				ErrNoRoute, connector, strings.Join(known, ", "), to.Name)
		}
		upstream = known[0]
	}
	return upstream, cmp.Or(to.Model, to.Name), nil
}
