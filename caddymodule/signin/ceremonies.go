package signin

import (
	"container/list"
	"crypto/rand"
	"net/netip"
	"sync"
	"time"

	"github.com/go-webauthn/webauthn/webauthn"
)

// Anybody can begin to sign in, so the ceremonies are bounded in all, and for
// each client, which then displaces its own.
const (
	maxCeremonies = 4096
	maxOfClient   = 16
)

// ceremony is a challenge that waits for its answer.
type ceremony struct {
	id     string
	client netip.Prefix // of assertions
	user   string       // of registrations: id
	origin string
	ends   time.Time
	data   *webauthn.SessionData
}

// ceremonies are kept in memory: one that a restart ends is begun again.
type ceremonies struct {
	mu    sync.Mutex
	byID  map[string]*list.Element
	order list.List // of *ceremony, the oldest first
}

func newCeremonies() *ceremonies { return &ceremonies{byID: map[string]*list.Element{}} }

// add keeps a ceremony and returns the id that it gets.
func (c *ceremonies) add(o ceremony, now time.Time) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.makeRoom(o, now)
	o.id = rand.Text()
	o.ends = now.Add(ceremonyLife)
	c.byID[o.id] = c.order.PushBack(&o)
	return o.id
}

// makeRoom drops the ended ceremonies, and the oldest of the same client and
// user, or of all, when there are too many.
func (c *ceremonies) makeRoom(o ceremony, now time.Time) {
	for e := c.order.Front(); e != nil && !now.Before(e.Value.(*ceremony).ends); e = c.order.Front() {
		c.remove(e)
	}
	var oldest *list.Element
	count := 0
	for e := c.order.Front(); e != nil; e = e.Next() {
		if other := e.Value.(*ceremony); other.client == o.client && other.user == o.user {
			if count++; oldest == nil {
				oldest = e
			}
		}
	}
	if count >= maxOfClient {
		c.remove(oldest)
	} else if c.order.Len() >= maxCeremonies {
		c.remove(c.order.Front())
	}
}

// take returns a ceremony that has not ended, once.
func (c *ceremonies) take(id, origin, user string, now time.Time) (*webauthn.SessionData, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byID[id]
	if !ok {
		return nil, errCeremony()
	}
	c.remove(e)
	o := e.Value.(*ceremony)
	if !now.Before(o.ends) || o.origin != origin || o.user != user {
		return nil, errCeremony()
	}
	return o.data, nil
}

func errCeremony() error {
	return fail(ErrPasskey, "this took longer than five minutes, or was answered already: begin again")
}

func (c *ceremonies) remove(e *list.Element) {
	c.order.Remove(e)
	delete(c.byID, e.Value.(*ceremony).id)
}
