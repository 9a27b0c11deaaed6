package tunnel

import (
	"slices"
	"sync"
)

// Event says that a connector came online or went offline.
type Event struct {
	Online    bool
	Connector string // id
	Account   string
	Name      string
}

// events tells subscribers what happened, in the order in which it did, and
// while nobody holds a lock. The zero value is ready.
type events struct {
	mu          sync.Mutex
	subscribers []*func(Event)
	queue       []Event
	telling     bool // somebody is at it: tell has nothing left to do
}

// Subscribe calls f for each connector that comes online or goes offline, until
// stop is called; a call that has begun by then may still run. A tunnel that is
// replaced by a newer one of the same connector is no going offline. One call
// follows the other: f must be quick, and may call the hub's methods.
func (h *Hub) Subscribe(f func(Event)) (stop func()) {
	e := &h.events
	e.mu.Lock()
	defer e.mu.Unlock()
	key := &f
	e.subscribers = append(slices.Clip(e.subscribers), key)
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.subscribers = slices.DeleteFunc(slices.Clone(e.subscribers), func(s *func(Event)) bool { return s == key })
	}
}

// add notes an event. The hub's lock is held: that is what gives the order.
func (e *events) add(event Event) {
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
		event, subscribers := e.queue[0], e.subscribers
		e.queue = e.queue[1:]
		e.mu.Unlock()
		for _, f := range subscribers {
			(*f)(event)
		}
		e.mu.Lock()
	}
	e.queue, e.telling = nil, false
}

// eventOf returns the event of a session that came or went.
func eventOf(s *Session, online bool) Event {
	return Event{Online: online, Connector: s.connector.ID, Account: s.connector.Account, Name: s.connector.Name}
}
