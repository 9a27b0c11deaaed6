package caddymodule

import (
	"time"

	"github.com/postern-dev/postern/caddymodule/tunnel"
)

const (
	// upstreamsAtOnce bounds the events about one connector's upstreams in
	// offlineAfter: what a connector reports is its own word.
	upstreamsAtOnce = 16
	// seenInterval is how often the time is noted at which connectors were online.
	// A gateway that is killed forgets no more than that.
	seenInterval = 10 * time.Minute
)

// lookSoon has the upstreams of a connector looked at in a moment: one that is
// unreachable only for so long makes no noise.
func (s *eventSources) lookSoon(p *presence) {
	if p.look != nil {
		return
	}
	p.look = time.AfterFunc(offlineAfter, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if p.look = nil; !s.closed && s.presences[p.Connector] == p && !s.look(p) {
			s.lookSoon(p)
		}
	})
}

// look tells which of a connector's upstreams have become unreachable, or
// reachable again. It returns false if it has to look again.
func (s *eventSources) look(p *presence) (done bool) {
	done = true
	down, told := make(map[string]bool), 0
	for hub := range p.hubs {
		for _, u := range s.states(hub, p.Connector) {
			was := p.down[u.Name]
			switch {
			case !u.Known || u.Down() == was:
				down[u.Name] = was
				continue
			case told == upstreamsAtOnce, u.Down() && time.Since(u.Since) < offlineAfter-time.Second:
				down[u.Name], done = was, false
				continue
			}
			name, data := eventUpstreamUp, connectorData(p.Event)
			if down[u.Name] = u.Down(); u.Down() {
				name = eventUpstreamDown
			}
			data["upstream"], data["since"] = u.Name, u.Since.UTC().Format(time.RFC3339)
			told++
			s.tell(gatewayEvent{name, data})
		}
	}
	if len(p.hubs) > 0 {
		p.down = down // those that the connector no longer has are forgotten
	}
	return done
}

// statesOf returns what a connector has reported to a hub of its upstreams.
func statesOf(hub *tunnel.Hub, connector string) []tunnel.UpstreamState {
	session, ok := hub.Session(connector)
	if !ok {
		return nil
	}
	return session.States()
}

// seeAll notes that the connectors that are online are, again and again.
func (s *eventSources) seeAll() {
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
	s.seeing = time.AfterFunc(seenInterval, s.seeAll)
}
