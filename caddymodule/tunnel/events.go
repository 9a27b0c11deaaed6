package tunnel

import (
	"sync"
	"sync/atomic"

	"github.com/postern-dev/postern/caddymodule/subscribe"
)

// Event is emitted when a connector comes online, goes offline, or reports a change
// of its upstreams.
type Event struct {
	Online    bool
	Reported  bool   // a change of upstreams; the connector was already online
	Connector string // id
	Account   string
	Name      string
}

// events delivers events to subscribers in order, without holding a lock. The zero
// value is ready for use.
type events struct {
	subscribers subscribe.List[Event]

	mu         sync.Mutex
	queue      []queuedEvent
	delivering bool // a goroutine is already delivering
}

// queuedEvent is an event that has not been delivered yet.
type queuedEvent struct {
	Event
	subscribers subscribe.Subscribers[Event] // at the time of the event
}

// Subscribe calls f for each event until stop is called; a call that has already
// begun may still be running. Replacing a tunnel by a newer one emits no offline
// event. Calls do not overlap: f must be quick. It may call the hub's methods.
func (h *Hub) Subscribe(f func(Event)) (stop func()) {
	var stopped atomic.Bool
	remove := h.events.subscribers.Add(func(e Event) {
		if !stopped.Load() { // the call may be for an event that was queued before stop
			f(e)
		}
	})
	return func() {
		stopped.Store(true)
		remove()
	}
}

// Follow is Subscribe, and also returns a snapshot of the online connectors. Each
// arrival is either in the snapshot or delivered to f, never both.
func (h *Hub) Follow(f func(Event)) (online []Event, stop func()) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, s := range h.live {
		if !s.silent.Load() {
			online = append(online, eventOf(s, true))
		}
	}
	return online, h.Subscribe(f)
}

// add queues an event. The hub's lock must be held, which keeps events in order.
func (e *events) add(event Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.queue = append(e.queue, queuedEvent{event, e.subscribers.Now()})
}

// deliver calls the subscribers for each queued event. The hub's lock must not be
// held.
func (e *events) deliver() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.delivering {
		return
	}
	e.delivering = true
	defer func() { e.delivering = false }() // after a panic of a subscriber, too
	for len(e.queue) > 0 {
		next := e.queue[0]
		e.queue = e.queue[1:]
		e.call(next)
	}
	e.queue = nil
}

// call calls the subscribers without the lock, which the caller holds.
func (e *events) call(next queuedEvent) {
	e.mu.Unlock()
	defer e.mu.Lock()
	next.subscribers.Call(next.Event)
}

// eventOf returns the online or offline event of a session.
func eventOf(s *Session, online bool) Event {
	return Event{Online: online, Connector: s.connector.ID, Account: s.connector.Account, Name: s.connector.Name}
}
