package tunnel

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// eventLog is a subscriber that keeps the events.
type eventLog struct {
	mu     sync.Mutex
	events []Event
}

func (l *eventLog) add(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

func (l *eventLog) all() []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

func TestSubscribe(t *testing.T) {
	g := newGateway(t, Options{})
	var log eventLog
	// A subscriber may ask the hub: nothing is locked while it is called.
	stop := g.Subscribe(func(e Event) {
		if _, online := g.Session(e.Connector); online != e.Online {
			e.Name = fmt.Sprintf("told %v, but it is %v", e.Online, online)
		}
		log.add(e)
	})
	var other eventLog
	g.Subscribe(other.add)

	c := g.connect(t, "con_1", echo)
	event := func(online bool) Event {
		return Event{Online: online, Connector: "con_1", Account: "default", Name: "name of con_1"}
	}
	want := []Event{event(true)}
	check := func(what string) {
		t.Helper()
		wait.Until(t, what, func() bool { return len(log.all()) >= len(want) })
		if got := log.all(); !slices.Equal(got, want) {
			t.Fatalf("%s: got %+v, want %+v", what, got, want)
		}
	}
	check("it is online")

	// A tunnel that replaces another one does not emit an offline event.
	g.connect(t, "con_1", echo)
	want = append(want, event(true))
	if code := c.ended(t); code != link.CloseReplaced {
		t.Errorf("closed with %s", code)
	}
	check("it is replaced")
	wait.Until(t, "the old session is forgotten", func() bool { return g.held() == 1 })

	g.Disconnect("con_1", link.CloseRemoved)
	want = append(want, event(false))
	check("it is offline")

	stop()
	g.connect(t, "con_1", echo)
	wait.Until(t, "the other subscriber has received all", func() bool { return len(other.all()) == 4 })
	check("nothing is told after stop")
}

// TestFollow: a subscriber that begins to follow while connectors come and go misses
// no event and gets none twice: the events continue from the snapshot.
func TestFollow(t *testing.T) {
	h := NewHub(Options{})
	var connectors, followers sync.WaitGroup
	for i := range 4 {
		connectors.Go(func() {
			s := &Session{connection: &connection{hub: h}, connector: Connector{ID: fmt.Sprint("con_", i)}}
			for range 3000 {
				h.register(s)
				h.remove(s)
			}
			h.register(s)
		})
	}
	for range 4 {
		followers.Go(func() {
			for range 300 {
				follow(t, h)
			}
		})
	}
	connectors.Wait()
	followers.Wait()
	if online, _ := h.Follow(func(Event) {}); len(online) != 4 {
		t.Errorf("online are %+v", online)
	}
}

// follow follows a hub for a moment.
func follow(t *testing.T, h *Hub) {
	var mu sync.Mutex
	online := make(map[string]bool)
	mu.Lock()
	now, stop := h.Follow(func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		if online[e.Connector] == e.Online {
			t.Errorf("%s was told to be %v, which it was", e.Connector, e.Online)
		}
		online[e.Connector] = e.Online
	})
	for _, e := range now {
		if online[e.Connector] || !e.Online {
			t.Errorf("%+v is not online, or twice", e)
		}
		online[e.Connector] = true
	}
	mu.Unlock()
	runtime.Gosched()
	stop()
}

// An event that is queued but not delivered yet is part of a new follower's snapshot.
func TestFollowDuringDelivery(t *testing.T) {
	session := func(h *Hub, id string) *Session {
		return &Session{connection: &connection{hub: h}, connector: Connector{ID: id}}
	}
	h := NewHub(Options{})
	stays, goes, replaced := session(h, "stays"), session(h, "goes"), session(h, "replaced")
	for _, s := range []*Session{stays, goes, replaced} {
		h.register(s)
	}
	var earlier, stopped, log eventLog
	h.Subscribe(earlier.add)
	stop := h.Subscribe(stopped.add)
	h.events.delivering = true // as while a goroutine delivers
	h.register(session(h, "comes"))
	h.remove(goes)
	h.register(session(h, "replaced"))
	stop()
	online, _ := h.Follow(log.add)
	var ids []string
	for _, e := range online {
		ids = append(ids, e.Connector)
	}
	slices.Sort(ids)
	if want := []string{"comes", "replaced", "stays"}; !slices.Equal(ids, want) {
		t.Errorf("online are %v, want %v", ids, want)
	}
	h.events.delivering = false
	h.events.deliver()
	want := []Event{{Online: true, Connector: "comes"}, {Connector: "goes"}, {Online: true, Connector: "replaced"}}
	if got := earlier.all(); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if len(log.all())+len(stopped.all()) != 0 {
		t.Errorf("the follower got %+v, the ended one %+v", log.all(), stopped.all())
	}
}
