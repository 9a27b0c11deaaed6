package events

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/window"
)

// touchInterval is how often the last-seen times of online connectors are saved. It is also the
// maximum error of these times after a crash.
const touchInterval = 10 * time.Minute

// The names of events, without the module's prefix.
const (
	eventConnectorOnline   = "connector_online"
	eventConnectorOffline  = "connector_offline"
	eventUpstreamDown      = "upstream_down"
	eventUpstreamUp        = "upstream_up"
	eventPairingRequested  = "pairing_requested"
	eventPairingApproved   = "pairing_approved"
	eventPairingLimited    = "pairing_limited"
	eventKeyCreated        = "key_created"
	eventKeyChanged        = "key_changed"
	eventKeyExpiring       = "key_expiring"
	eventKeyExpired        = "key_expired"
	eventKeyRevoked        = "key_revoked"
	eventKeyLimit          = "key_limit"
	eventGroupLimit        = "group_limit"
	eventAccountLimit      = "account_limit"
	eventDeploymentChanged = "deployment_changed"
	eventDeploymentRemoved = "deployment_removed"
	eventModelHanging      = "model_hanging"
	eventModelAnswering    = "model_answering"
	eventModelCutsPrompts  = "model_cuts_prompts"
	eventModelSlow         = "model_slow"
)

// sources creates events from the changes of the store and the tunnels. It tracks
// which connectors were reported as online, since one tunnel may replace another.
type sources struct {
	store *store.Store
	emit  func(Event) // returns at once
	stop  func()      // ends the subscription to the store
	// states returns the upstream states that a connector has reported to a hub.
	states func(hub *tunnel.Hub, connector string) []tunnel.UpstreamState

	mu        sync.Mutex // held while emitting, to keep events in order
	closed    bool
	presences map[string]*presence   // by connector id
	hubs      map[*tunnel.Hub]func() // end the subscriptions
	touching  *time.Timer            // until touchAll
	deferred  []deferredEvent        // events that the leader emits
	alerts    alerts
}

// newSources starts watching the store. Existing records emit no events.
func newSources(st *store.Store, emit func(Event)) *sources {
	s := &sources{
		store: st, emit: emit, states: statesOf,
		presences: make(map[string]*presence), hubs: make(map[*tunnel.Hub]func()),
		alerts: alerts{offline: make(map[string]bool), models: make(map[cause]map[model]bool)},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touching = time.AfterFunc(touchInterval, s.touchAll)
	s.stop = st.Subscribe(s.onChange)
	return s
}

// close stops all events, including those of connectors that have just gone
// offline.
func (s *sources) close() {
	s.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.touching.Stop()
	for _, stop := range s.hubs {
		stop()
	}
	s.touch()
}

// touch updates the last-seen times of online connectors.
func (s *sources) touch() {
	for _, p := range s.presences {
		if len(p.hubs) > 0 {
			s.seen(p)
		}
	}
}

// touchAll calls touch every touchInterval.
func (s *sources) touchAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.touch()
		s.touching = time.AfterFunc(touchInterval, s.touchAll)
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
		if c.Removed {
			s.alerts.forget(c.ID)
		}
	case store.KindEdge, store.KindReport: // with reports, this happens every few seconds
		if len(s.deferred) > 0 && s.store.Leads() {
			s.emitDeferred()
		}
	}
}

func (s *sources) onKey(c store.Change) {
	data := map[string]any{"account": c.Account, "key_id": c.ID, "key_name": c.Name}
	k, known := s.store.Key(c.Account, c.ID)
	if known && k.ExpiresAt != nil {
		data["expires_at"] = k.ExpiresAt.Format(time.RFC3339)
	}
	switch {
	case c.Expiring > 0:
		s.emitOnce(c, Event{Name: eventKeyExpiring, Data: data})
	case c.State == store.KeyExpired:
		s.emitOnce(c, Event{Name: eventKeyExpired, Data: data})
	case c.Was == "" && !c.Removed:
		s.emitOnce(c, Event{Name: eventKeyCreated, Data: data})
	case c.Was != store.KeyRevoked && c.Removed:
		s.emitOnce(c, Event{Name: eventKeyRevoked, Data: data})
	case !c.Removed && known:
		data["state"], data["changed_by"] = k.State(time.Now()), k.Changer().Label()
		s.emitOnce(c, Event{Name: eventKeyChanged, Data: data})
	}
}

func (s *sources) onDeployment(c store.Change) {
	data := map[string]any{"account": c.Account, "deployment": c.ID}
	if c.Removed {
		s.emitOnce(c, Event{Name: eventDeploymentRemoved, Data: data})
		return
	}
	d, ok := s.store.Deployment(c.Account, c.ID)
	if !ok {
		return // already removed, which is reported next
	}
	data["upstream"], data["model"] = d.Upstream, d.Model
	s.emitOnce(c, Event{Name: eventDeploymentChanged, Data: data})
}

func (s *sources) onPairing(c store.Change) {
	p, ok := s.store.Pairing(c.Account, c.ID)
	if !ok || c.Was == c.State || p.Device == nil {
		return
	}
	data := map[string]any{
		"account": c.Account, "pairing_id": c.ID, "hostname": p.Device.Hostname, "os": p.Device.OS,
		"version": p.Device.Version, "remote": p.Device.Address, "fingerprint": p.Device.Fingerprint,
	}
	switch c.State {
	case store.PairingPending:
		s.emitOnce(c, Event{Name: eventPairingRequested, Data: data})
	case store.PairingApproved:
		data["connector_id"], data["decided_by"], data["replaced"] = p.Connector, p.DecidedBy, strconv.FormatBool(p.Replaced)
		if connector, ok := s.store.Connector(p.Connector); ok {
			data["connector_name"] = connector.Name
		}
		s.emitOnce(c, Event{Name: eventPairingApproved, Data: data})
	}
}

// LimitCrossed emits an event about a limit per day or month of which 80 or 100 percent are used.
func (s *sources) LimitCrossed(account string, c limits.Crossing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	data := map[string]any{
		"account": account, "limit": c.Limit, "percent": strconv.Itoa(c.Percent),
		"used": strconv.FormatInt(c.Used, 10), "max": strconv.FormatInt(c.Max, 10),
	}
	switch c.Of {
	case limits.OfAccount:
		s.emitHere(Event{Name: eventAccountLimit, Data: data})
	case limits.OfGroup:
		data["group_id"], data["group_name"] = c.ID, s.store.GroupName(c.ID)
		s.emitHere(Event{Name: eventGroupLimit, Data: data})
	case limits.OfKey:
		k, _ := s.store.Key(account, c.ID)
		data["key_id"], data["key_name"] = c.ID, k.Name
		s.emitHere(Event{Name: eventKeyLimit, Data: data})
	}
}

// ModelChanged emits an event about a model server whose answers have shown another state, see
// [observed.Table.Changed]. In a cluster, each gateway emits those of the requests that it has sent.
func (s *sources) ModelChanged(account, deployment, connector string, found health.Finding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	c, _ := s.store.Connector(connector)
	e := Event{Name: eventModelAnswering, Data: map[string]any{
		"account": account, "deployment": deployment, "connector_id": connector, "connector_name": c.Name,
	}}
	switch found.State {
	case health.Hanging:
		e.Name, e.Data["remedy"] = eventModelHanging, "restart the model server"
	case health.CutsPrompts:
		e.Name, e.Data["remedy"] = eventModelCutsPrompts, window.Remedy
		if found.Window > 0 {
			e.Data["context_window"] = strconv.Itoa(found.Window)
		}
	case health.Slow:
		e.Name, e.Data["remedy"] = eventModelSlow, found.Pace()
		e.Data["tokens_per_second"] = strconv.FormatFloat(found.Speed, 'f', 1, 64)
		e.Data["usual_tokens_per_second"] = strconv.FormatFloat(found.Usual, 'f', 1, 64)
	}
	s.emitHere(e)
}

// PairingLimited emits an event for each account with an unused pairing code: its
// device may be rejected at first.
func (s *sources) PairingLimited() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	for _, account := range s.store.Accounts() {
		waits := func(p store.Pairing) bool { return p.State == store.PairingWaiting }
		if slices.ContainsFunc(s.store.Pairings(account.ID), waits) {
			s.emitHere(Event{Name: eventPairingLimited, Data: map[string]any{"account": account.ID}})
		}
	}
}
