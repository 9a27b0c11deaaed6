package events

import (
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

const (
	// offlineAfter is how long a connector or an upstream may be away before it is
	// reported, so that shorter outages emit no event.
	offlineAfter = 5 * time.Second
	// maxLastModels bounds the names that are kept of the models of a connector.
	maxLastModels = 100
	// upstreamsAtOnce bounds the events about one connector's upstreams within
	// offlineAfter, since connectors control their reports.
	upstreamsAtOnce = 16
)

// presence is a connector that is online, or was less than offlineAfter ago.
type presence struct {
	tunnel.Event                      // the last one of any hub
	hubs         map[*tunnel.Hub]bool // where it is online
	left         time.Time            // when it went offline, if hubs is empty
	down         map[string]bool      // upstreams that were reported as unreachable
	check        *time.Timer          // nil: no check is due
}

// Follow starts reporting a hub's connectors. A second call has no effect. Connectors
// that are already online are not reported again.
func (s *sources) Follow(hub *tunnel.Hub) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.hubs[hub] != nil {
		return
	}
	online, stop := hub.Follow(func(e tunnel.Event) { s.onTunnel(hub, e) })
	s.hubs[hub] = stop
	for _, e := range online {
		s.arrive(hub, e)
	}
}

// Unfollow undoes Follow for a hub that is closed or failed to start. Its
// connectors are treated as offline.
func (s *sources) Unfollow(hub *tunnel.Hub) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if stop := s.hubs[hub]; stop != nil {
		stop()
		delete(s.hubs, hub)
	}
	for _, p := range s.presences {
		s.depart(hub, p)
	}
}

// onTunnel implements the subscription to a hub.
func (s *sources) onTunnel(hub *tunnel.Hub, e tunnel.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.presences[e.Connector]
	switch {
	case s.closed, p == nil && (!e.Online || e.Reported):
		return
	case !e.Online:
		s.depart(hub, p)
		return
	case e.Reported:
		s.checkAfter(p, offlineAfter)
		return
	case !s.arrive(hub, e):
		return
	}
	data := connectorData(e)
	if session, ok := hub.Session(e.Connector); ok {
		info := session.Info()
		data["transport"], data["remote"] = info.Transport, info.Remote
	}
	s.emitTunnelEvent(Event{Name: eventConnectorOnline, Data: data})
}

// arrive records that a connector is online at a hub. isNew is set if the connector was
// not online before.
func (s *sources) arrive(hub *tunnel.Hub, e tunnel.Event) (isNew bool) {
	p := s.presences[e.Connector]
	if p == nil {
		p, isNew = &presence{hubs: make(map[*tunnel.Hub]bool)}, true
		s.presences[e.Connector] = p
	}
	p.Event = e
	p.hubs[hub] = true
	s.seen(p)
	s.checkAfter(p, offlineAfter)
	return isNew
}

// seen records that a connector is online, and what its tunnel shows.
func (s *sources) seen(p *presence) {
	var last *store.LastTunnel
	for hub := range p.hubs {
		if session, ok := hub.Session(p.Connector); ok {
			info := session.Info()
			last = &store.LastTunnel{Remote: info.Remote, Version: info.Version, OS: info.OS}
			for _, u := range info.States {
				last.Models = append(last.Models, u.Models[:min(len(u.Models), maxLastModels-len(last.Models))]...)
			}
		}
	}
	s.store.TouchConnector(p.Connector, last)
}

// depart records that a connector is no longer online at a hub. It is reported as
// offline later, unless the connector comes back.
func (s *sources) depart(hub *tunnel.Hub, p *presence) {
	if !p.hubs[hub] {
		return
	}
	if delete(p.hubs, hub); len(p.hubs) == 0 {
		p.left = time.Now()
		s.store.TouchConnector(p.Connector, nil)
		s.checkAfter(p, offlineAfter)
	}
}

// checkAfter schedules a check of a connector, unless one is due earlier.
func (s *sources) checkAfter(p *presence, d time.Duration) {
	if p.check == nil {
		p.check = time.AfterFunc(d, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if p.check = nil; !s.closed {
				s.check(p)
			}
		})
	}
}

// check reports a connector that has gone offline, or its upstreams.
func (s *sources) check(p *presence) {
	if len(p.hubs) > 0 {
		if !s.checkUpstreams(p) {
			s.checkAfter(p, offlineAfter)
		}
		return
	}
	if !s.store.InContact() {
		p.left = time.Now() // this gateway may be offline, and not the connector
	}
	if rest := s.absence() - time.Since(p.left); rest > 0 {
		s.checkAfter(p, min(rest, offlineAfter))
		return
	}
	delete(s.presences, p.Connector)
	data := connectorData(p.Event)
	data["since"] = p.left.UTC().Format(time.RFC3339)
	s.emitTunnelEvent(Event{Name: eventConnectorOffline, Data: data})
}

// absence is how long a connector may be away before it is reported. In a cluster, this is
// long enough for a gateway to notice that it has lost its own contact, see check.
func (s *sources) absence() time.Duration {
	if s.store.Shared() {
		return offlineAfter + lostAfter
	}
	return offlineAfter
}

// connectorData returns the data common to all events of a connector.
func connectorData(e tunnel.Event) map[string]any {
	return map[string]any{"account": e.Account, "connector_id": e.Connector, "connector_name": e.Name}
}

// checkUpstreams reports a connector's upstreams that have become unreachable or reachable
// again. It returns false if another check is necessary.
func (s *sources) checkUpstreams(p *presence) (done bool) {
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
			s.emitTunnelEvent(Event{Name: name, Data: data})
		}
	}
	p.down = down // without upstreams that were removed from the connector
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
