package tunnel

import (
	"sync"

	"github.com/postern-dev/postern/caddymodule/subscribe"
)

// Event is that a connector came online or went offline, or has reported
// something new of its upstreams.
type Event struct {
	Online    bool
	Reported  bool   // it was online before
	Connector string // id
	Account   string
	Name      string
}

// events delivers events to subscribers in their order, while no lock is held. The
// zero value is ready.
type events struct {
	mu          sync.Mutex
	subscribers subscribe.List[Event]
	queue       []queuedEvent
	delivering  bool // a goroutine is already delivering
}

// queuedEvent is an event that is not delivered yet.
type queuedEvent struct {
	Event
	before bool // whether the connector was online
}

// Subscribe calls f for each connector that comes online, goes offline or reports
// something new, until stop is called; a call that has begun by then may still run.
// Replacing a tunnel by a newer one is not reported as offline. Calls do not
// overlap: f must be quick, and may call the hub's methods.
func (h *Hub) Subscribe(f func(Event)) (stop func()) { return h.events.subscribers.Add(f) }

// Follow is Subscribe, and returns a snapshot of the connectors that are online: each
// is in the snapshot or delivered to f, never both.
func (h *Hub) Follow(f func(Event)) (online []Event, stop func()) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	e := &h.events
	e.mu.Lock()
	defer e.mu.Unlock()
	// Queued events will be delivered to f: for f they have not happened.
	pending := make(map[string]bool)
	for _, n := range e.queue {
		if !pending[n.Connector] && n.before {
			n.Online, n.Reported = true, false
			online = append(online, n.Event)
		}
		pending[n.Connector] = true
	}
	for id, s := range h.live {
		if !pending[id] && !s.away.Load() {
			online = append(online, eventOf(s, true))
		}
	}
	return online, e.subscribers.Add(f)
}

// add queues an event. The hub's lock is held: that is what gives the order.
func (e *events) add(event queuedEvent) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.queue = append(e.queue, event)
}

// deliver calls the subscribers for each queued event. The hub's lock is not held.
func (e *events) deliver() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.delivering {
		return
	}
	e.delivering = true
	for len(e.queue) > 0 {
		event, subscribers := e.queue[0].Event, e.subscribers.Now()
		e.queue = e.queue[1:]
		e.mu.Unlock()
		subscribers.Call(event)
		e.mu.Lock()
	}
	e.queue, e.delivering = nil, false
}

// eventOf returns the event of a session that came or went.
func eventOf(s *Session, online bool) Event {
	return Event{Online: online, Connector: s.connector.ID, Account: s.connector.Account, Name: s.connector.Name}
}
