package signin

import (
	"container/list"
	"crypto/rand"
	"net/netip"
	"sync"
	"time"

	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/postern-dev/postern/caddymodule/store"
)

// Anybody can begin to sign in, so the ceremonies are bounded in all, and for
// each client, which then displaces its own. In all they are displaced for others
// only as long as a client has several: many clients at once cannot keep somebody
// from signing in, unless there are thousands of them.
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
	of    map[beginner]int
}

// beginner is whose ceremony one is.
type beginner struct {
	client netip.Prefix
	user   string
}

func (c *ceremony) beginner() beginner { return beginner{c.client, c.user} }

func newCeremonies() *ceremonies {
	return &ceremonies{byID: map[string]*list.Element{}, of: map[beginner]int{}}
}

// add keeps a ceremony and returns the id that it gets.
func (c *ceremonies) add(o ceremony, now time.Time) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.makeRoom(o, now)
	o.id = rand.Text()
	o.ends = now.Add(ceremonyLife)
	c.byID[o.id] = c.order.PushBack(&o)
	c.of[o.beginner()]++
	return o.id
}

// makeRoom drops the ended ceremonies, and when there are too many the oldest of
// the same client and user, or of all who have several.
func (c *ceremonies) makeRoom(o ceremony, now time.Time) {
	for e := c.order.Front(); e != nil && !now.Before(e.Value.(*ceremony).ends); e = c.order.Front() {
		c.remove(e)
	}
	switch {
	case c.of[o.beginner()] >= maxOfClient:
		c.remove(c.oldest(func(other *ceremony) bool { return other.beginner() == o.beginner() }))
	case c.order.Len() >= maxCeremonies:
		c.remove(c.oldest(func(other *ceremony) bool { return c.of[other.beginner()] > 1 }))
	}
}

// oldest returns the oldest ceremony for which is holds, else the oldest of all.
func (c *ceremonies) oldest(is func(*ceremony) bool) *list.Element {
	for e := c.order.Front(); e != nil; e = e.Next() {
		if is(e.Value.(*ceremony)) {
			return e
		}
	}
	return c.order.Front()
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
	return store.Errorf(ErrPasskey, "this took longer than five minutes, or was answered already: begin again")
}

func (c *ceremonies) remove(e *list.Element) {
	o := e.Value.(*ceremony)
	c.order.Remove(e)
	delete(c.byID, o.id)
	if c.of[o.beginner()]--; c.of[o.beginner()] == 0 {
		delete(c.of, o.beginner())
	}
}
