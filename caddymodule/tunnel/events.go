package tunnel

import (
	"sync"

	"github.com/postern-dev/postern/caddymodule/subscribe"
)

// Event says that a connector came online or went offline, or has reported
// something new of its upstreams.
type Event struct {
	Online    bool
	Reported  bool   // it was online before
	Connector string // id
	Account   string
	Name      string
}

// events tells subscribers what happened, in the order in which it did, and
// while nobody holds a lock. The zero value is ready.
type events struct {
	mu          sync.Mutex
	subscribers subscribe.List[Event]
	queue       []noted
	telling     bool // somebody is at it: tell has nothing left to do
}

// noted is an event that has yet to be told.
type noted struct {
	Event
	before bool // whether the connector was online
}

// Subscribe calls f for each connector that comes online, goes offline or reports
// something new, until
// stop is called; a call that has begun by then may still run. A tunnel that is
// replaced by a newer one of the same connector is no going offline. One call
// follows the other: f must be quick, and may call the hub's methods.
func (h *Hub) Subscribe(f func(Event)) (stop func()) { return h.events.subscribers.Add(f) }

// Follow is Subscribe, and returns who is online: of each connector either that
// is told, or its coming.
func (h *Hub) Follow(f func(Event)) (online []Event, stop func()) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	e := &h.events
	e.mu.Lock()
	defer e.mu.Unlock()
	// What is noted, but not told yet, f will hear: for f it has not happened.
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

// add notes an event. The hub's lock is held: that is what gives the order.
func (e *events) add(event noted) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.queue = append(e.queue, event)
}

// tell tells what was noted. The hub's lock is not held.
func (e *events) tell() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.telling {
		return
	}
	e.telling = true
	for len(e.queue) > 0 {
		event, subscribers := e.queue[0].Event, e.subscribers.Now()
		e.queue = e.queue[1:]
		e.mu.Unlock()
		subscribers.Call(event)
		e.mu.Lock()
	}
	e.queue, e.telling = nil, false
}

// eventOf returns the event of a session that came or went.
func eventOf(s *Session, online bool) Event {
	return Event{Online: online, Connector: s.connector.ID, Account: s.connector.Account, Name: s.connector.Name}
}
