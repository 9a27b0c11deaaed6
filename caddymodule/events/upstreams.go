package events

import (
	"time"

	"github.com/postern-dev/postern/caddymodule/tunnel"
)

const (
	// upstreamsAtOnce bounds the events about one connector's upstreams within
	// offlineAfter, since connectors control their reports.
	upstreamsAtOnce = 16
	// touchInterval is how often the last-seen times of online connectors are
	// saved. A gateway that is killed loses at most that much.
	touchInterval = 10 * time.Minute
)

// checkSoon schedules a check of a connector's upstreams after offlineAfter, so
// that shorter outages emit no event.
func (s *sources) checkSoon(p *presence) {
	if p.check != nil {
		return
	}
	p.check = time.AfterFunc(offlineAfter, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if p.check = nil; !s.closed && s.presences[p.Connector] == p && !s.check(p) {
			s.checkSoon(p)
		}
	})
}

// check reports a connector's upstreams that have become unreachable or reachable
// again. It returns false if another check is necessary.
func (s *sources) check(p *presence) (done bool) {
	done = true
	down, reported := make(map[string]bool), 0
	for hub := range p.hubs {
		for _, u := range s.states(hub, p.Connector) {
			was := p.down[u.Name]
			switch {
			case !u.Known || u.Down() == was:
				down[u.Name] = was
				continue
			case reported == upstreamsAtOnce, u.Down() && time.Since(u.Since) < offlineAfter-time.Second:
				down[u.Name], done = was, false
				continue
			}
			name, data := eventUpstreamUp, connectorData(p.Event)
			if down[u.Name] = u.Down(); u.Down() {
				name = eventUpstreamDown
			}
			data["upstream"], data["since"] = u.Name, u.Since.UTC().Format(time.RFC3339)
			reported++
			s.emit(Event{name, data})
		}
	}
	if len(p.hubs) > 0 {
		p.down = down // without upstreams that the connector no longer has
	}
	return done
}

// statesOf returns the upstream states that a connector has reported to a hub.
func statesOf(hub *tunnel.Hub, connector string) []tunnel.UpstreamState {
	session, ok := hub.Session(connector)
	if !ok {
		return nil
	}
	return session.States()
}

// touchAll updates the last-seen times of online connectors every touchInterval.
func (s *sources) touchAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	for id, p := range s.presences {
		if len(p.hubs) > 0 {
			s.store.TouchConnector(id)
		}
	}
	s.touching = time.AfterFunc(touchInterval, s.touchAll)
}
