package events

import (
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

// offlineAfter is how long a connector may be away before it is reported: a
// reconnect makes no event.
const offlineAfter = 5 * time.Second

// The names of events, without the module's.
const (
	eventConnectorOnline   = "connector_online"
	eventConnectorOffline  = "connector_offline"
	eventConnectorRotated  = "connector_rotated"
	eventUpstreamDown      = "upstream_down"
	eventUpstreamUp        = "upstream_up"
	eventPairingRequested  = "pairing_requested"
	eventPairingApproved   = "pairing_approved"
	eventPairingLimited    = "pairing_limited"
	eventKeyCreated        = "key_created"
	eventKeyRevoked        = "key_revoked"
	eventDeploymentChanged = "deployment_changed"
	eventDeploymentRemoved = "deployment_removed"
)

// sources makes events of the changes that the store and the tunnels report. It
// knows what has been reported: the store may report a change though nothing
// differs, and a tunnel may be replaced by another.
type sources struct {
	store *store.Store
	emit  func(Event) // returns at once
	stop  func()      // ends the subscription to the store
	// states returns what a connector has reported to a hub.
	states func(hub *tunnel.Hub, connector string) []tunnel.UpstreamState

	mu          sync.Mutex // held while emitting, for the order
	closed      bool
	keys        map[string]bool // by id: whether it is revoked
	deployments map[deployment]store.Deployment
	pairings    map[string]string      // states by id
	rotations   map[string]time.Time   // the last by connector id
	presences   map[string]*presence   // by connector id
	hubs        map[*tunnel.Hub]func() // end the subscriptions
	touching    *time.Timer            // until touchAll
}

type deployment struct{ account, name string }

// presence is a connector that is online, or was until a moment ago.
type presence struct {
	tunnel.Event                      // its last, of any hub
	hubs         map[*tunnel.Hub]bool // where it is online
	turn         int                  // counts its comings and goings
	timer        *time.Timer          // until it is reported as offline
	down         map[string]bool      // its upstreams that were reported as unreachable
	check        *time.Timer          // until its upstreams are checked; nil: they need not be
}

// newSources begins to watch the store. Its present records make no events.
func newSources(st *store.Store, emit func(Event)) *sources {
	s := &sources{
		store: st, emit: emit, states: statesOf,
		keys: make(map[string]bool), deployments: make(map[deployment]store.Deployment), pairings: make(map[string]string),
		rotations: make(map[string]time.Time),
		presences: make(map[string]*presence), hubs: make(map[*tunnel.Hub]func()),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touching = time.AfterFunc(touchInterval, s.touchAll)
	s.stop = st.Subscribe(s.onChange)
	for _, account := range st.Accounts() {
		for _, k := range st.Keys(account.ID) {
			s.keys[k.ID] = k.RevokedAt != nil
		}
		for _, d := range st.Deployments(account.ID) {
			s.deployments[deployment{d.Account, d.Name}] = d
		}
		for _, p := range st.Pairings(account.ID) {
			s.pairings[p.ID] = p.State
		}
		for _, c := range st.Connectors(account.ID) {
			if c.RotatedAt != nil {
				s.rotations[c.ID] = *c.RotatedAt
			}
		}
	}
	return s
}

// close ends all reports, also of connectors that have just gone offline.
func (s *sources) close() {
	s.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.touching.Stop()
	for _, stop := range s.hubs {
		stop()
	}
	for id, p := range s.presences {
		p.stopTimer()
		if p.check != nil {
			p.check.Stop()
		}
		if len(p.hubs) > 0 {
			s.store.TouchConnector(id)
		}
	}
}

// onChange implements the subscription to the store.
func (s *sources) onChange(c store.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	switch c.Kind {
	case store.KindKey:
		s.onKey(c)
	case store.KindDeployment:
		s.onDeployment(c)
	case store.KindPairing:
		s.onPairing(c)
	case store.KindConnector:
		s.onConnector(c)
	}
}

func (s *sources) onKey(c store.Change) {
	revoked, known := s.keys[c.ID]
	if known && revoked == c.Removed {
		return
	}
	// Also of removed keys: their revocation has been reported.
	s.keys[c.ID] = c.Removed
	name := eventKeyCreated
	if c.Removed {
		name = eventKeyRevoked
	}
	s.emit(Event{name, map[string]any{"account": c.Account, "key_id": c.ID, "key_name": c.Name}})
}

func (s *sources) onDeployment(c store.Change) {
	id := deployment{c.Account, c.ID}
	before, known := s.deployments[id]
	data := map[string]any{"account": c.Account, "deployment": c.ID}
	if c.Removed {
		delete(s.deployments, id)
		if known {
			s.emit(Event{eventDeploymentRemoved, data})
		}
		return
	}
	d, ok := s.store.Deployment(c.Account, c.ID)
	if !ok || known && reflect.DeepEqual(before, d) {
		return // removed again, which is reported next; or reported already
	}
	s.deployments[id] = d
	data["upstream"], data["model"] = d.Upstream, d.Model
	s.emit(Event{eventDeploymentChanged, data})
}

func (s *sources) onPairing(c store.Change) {
	before, state := s.pairings[c.ID], c.Name
	if c.Removed {
		delete(s.pairings, c.ID)
		return
	}
	s.pairings[c.ID] = state
	p, ok := s.store.Pairing(c.Account, c.ID)
	if !ok || before == state || p.Device == nil {
		return
	}
	data := map[string]any{
		"account": c.Account, "pairing_id": c.ID, "hostname": p.Device.Hostname, "os": p.Device.OS,
		"version": p.Device.Version, "remote": p.Device.Address, "fingerprint": p.Device.Fingerprint,
	}
	switch state {
	case store.PairingPending:
		s.emit(Event{eventPairingRequested, data})
	case store.PairingApproved:
		data["connector_id"], data["decided_by"], data["replaced"] = p.Connector, p.DecidedBy, strconv.FormatBool(p.Replaced)
		if connector, ok := s.store.Connector(p.Connector); ok {
			data["connector_name"] = connector.Name
		}
		s.emit(Event{eventPairingApproved, data})
	}
}

// PairingLimited reports to each account with a code that waits for its device
// that the device may have to try more than once.
func (s *sources) PairingLimited() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	for _, account := range s.store.Accounts() {
		waits := func(p store.Pairing) bool { return p.State == store.PairingWaiting }
		if slices.ContainsFunc(s.store.Pairings(account.ID), waits) {
			s.emit(Event{eventPairingLimited, map[string]any{"account": account.ID}})
		}
	}
}

// onConnector reports a connector that has a new token, once it is the only one.
func (s *sources) onConnector(c store.Change) {
	if c.Removed {
		delete(s.rotations, c.ID)
		return
	}
	now, ok := s.store.Connector(c.ID)
	if !ok || now.RotatedAt == nil || now.RotatedAt.Equal(s.rotations[c.ID]) {
		return
	}
	s.rotations[c.ID] = *now.RotatedAt
	s.emit(Event{eventConnectorRotated, map[string]any{
		"account": c.Account, "connector_id": c.ID, "connector_name": c.Name,
	}})
}

// Follow begins to report a hub's connectors, if it has not begun yet. Those
// that are online by now have been reported before.
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

// Unfollow ends Follow, of a hub that is closed or was never opened: its
// connectors are offline.
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
	if s.closed {
		return
	}
	if !e.Online {
		if p := s.presences[e.Connector]; p != nil {
			s.depart(hub, p)
		}
		return
	}
	if e.Reported {
		if p := s.presences[e.Connector]; p != nil {
			s.checkSoon(p)
		}
		return
	}
	if !s.arrive(hub, e) {
		return
	}
	data := connectorData(e)
	if session, ok := hub.Session(e.Connector); ok {
		info := session.Info()
		data["transport"], data["remote"] = info.Transport, info.Remote
	}
	s.emit(Event{eventConnectorOnline, data})
}

// arrive notes that a connector is online at a hub, and reports whether it was
// reported as offline before.
func (s *sources) arrive(hub *tunnel.Hub, e tunnel.Event) (news bool) {
	p := s.presences[e.Connector]
	if p == nil {
		p, news = &presence{hubs: make(map[*tunnel.Hub]bool)}, true
		s.presences[e.Connector] = p
	}
	p.Event = e
	p.hubs[hub] = true
	p.stopTimer()
	s.store.TouchConnector(e.Connector)
	s.checkSoon(p)
	return news
}

// depart notes that a connector is no longer online at a hub. It is reported
// later, unless the connector comes back.
func (s *sources) depart(hub *tunnel.Hub, p *presence) {
	if !p.hubs[hub] {
		return
	}
	delete(p.hubs, hub)
	if len(p.hubs) > 0 {
		return
	}
	s.store.TouchConnector(p.Connector)
	p.stopTimer()
	turn, data := p.turn, connectorData(p.Event)
	data["since"] = time.Now().UTC().Format(time.RFC3339)
	p.timer = time.AfterFunc(offlineAfter, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.closed || p.turn != turn {
			return
		}
		delete(s.presences, p.Connector)
		if p.check != nil {
			p.check.Stop()
		}
		s.emit(Event{eventConnectorOffline, data})
	})
}

// connectorData is the data that each event of a connector has.
func connectorData(e tunnel.Event) map[string]any {
	return map[string]any{"account": e.Account, "connector_id": e.Connector, "connector_name": e.Name}
}

// stopTimer cancels the report of a departure, even if the timer has just fired.
func (p *presence) stopTimer() {
	p.turn++
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
}
