package signin

import (
	"crypto/rand"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/postern-dev/postern/caddymodule/store"
)

// Anyone can begin to sign in, so the ceremonies are bounded in all, and for each
// client, which then displaces its own. In all those are displaced of which a client
// has several, so that it takes thousands of clients to keep a user out.
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
	mu   sync.Mutex
	list []*ceremony // the oldest first
	of   map[beginner]int
}

// beginner is whose ceremony one is.
type beginner struct {
	client netip.Prefix
	user   string
}

func (c *ceremony) beginner() beginner { return beginner{c.client, c.user} }

func newCeremonies() *ceremonies {
	return &ceremonies{of: make(map[beginner]int)}
}

// add keeps a ceremony and returns the id that it gets.
func (c *ceremonies) add(o ceremony, now time.Time) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.makeRoom(o, now)
	o.id = rand.Text()
	o.ends = now.Add(ceremonyLife)
	c.list = append(c.list, &o)
	c.of[o.beginner()]++
	return o.id
}

// makeRoom drops the ended ceremonies, and when there are too many the oldest of
// the same client and user, or of all who have several.
func (c *ceremonies) makeRoom(o ceremony, now time.Time) {
	for len(c.list) > 0 && !now.Before(c.list[0].ends) {
		c.remove(0)
	}
	var several func(*ceremony) bool
	switch {
	case c.of[o.beginner()] >= maxOfClient:
		several = func(other *ceremony) bool { return other.beginner() == o.beginner() }
	case len(c.list) >= maxCeremonies:
		several = func(other *ceremony) bool { return c.of[other.beginner()] > 1 }
	default:
		return
	}
	c.remove(max(0, slices.IndexFunc(c.list, several)))
}

// take returns a ceremony that has not ended, once.
func (c *ceremonies) take(id, origin, user string, now time.Time) (*webauthn.SessionData, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := slices.IndexFunc(c.list, func(o *ceremony) bool { return o.id == id })
	if at < 0 {
		return nil, errCeremony()
	}
	o := c.remove(at)
	if !now.Before(o.ends) || o.origin != origin || o.user != user {
		return nil, errCeremony()
	}
	return o.data, nil
}

func errCeremony() error {
	return store.Errorf(ErrPasskey, "this took longer than five minutes, or was answered already: begin again")
}

func (c *ceremonies) remove(at int) *ceremony {
	o := c.list[at]
	c.list = slices.Delete(c.list, at, at+1)
	if c.of[o.beginner()]--; c.of[o.beginner()] == 0 {
		delete(c.of, o.beginner())
	}
	return o
}
