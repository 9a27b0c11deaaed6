package fair

import (
	"context"
	"sync"
	"time"
)

// Client is who sends a request: a key and its owner, who may have many keys.
type Client struct{ Owner, Key string }

// Path returns the client's groups in [Turns].
func (c Client) Path() []string { return []string{c.Owner, c.Key} }

const (
	// keptFrom is the number of places from which some are kept for clients that have few.
	keptFrom = 16
	// keptPart is the part of the places that is kept.
	keptPart = 8
	// mostWaiting bounds the requests that wait for a place.
	mostWaiting = 1024
)

// Places divides a number of places among clients. One key may have nearly all of them while the
// other clients send nothing. From 16 places on, the last eighth goes only to keys that have fewer
// places than are free, and half of that eighth only to owners that do. A freed place goes to the
// owner, and then to the key, that has the fewest.
type Places struct {
	most int

	mu     sync.Mutex
	taken  int
	owners map[string]*share
	keys   map[Client]*share
	spare  *share // list of unused shares, to avoid allocations
	turns  Turns[string, *placeWaiter]
}

// share is what one key has, or one owner. It exists while it has places or waits for some.
type share struct {
	places int
	uses   int // places and waiters
	next   *share
}

// holder is a client with its shares, of the owner and of the key.
type holder struct {
	client Client
	shares [2]*share
}

// Place is a place that a request has.
type Place struct {
	of *Places
	holder
}

// placeWaiter waits for a place.
type placeWaiter struct {
	holder
	path  []string
	ready chan error // buffered; receives nil with the place, ErrBusy when it was displaced
}

// NewPlaces returns places that are all free.
func NewPlaces(most int) *Places {
	return &Places{most: most, owners: make(map[string]*share), keys: make(map[Client]*share)}
}

// Enter takes a place, and waits for it up to d. It returns ErrBusy or the cause of ctx's end. The
// caller must call [Place.Leave] once.
func (p *Places) Enter(ctx context.Context, c Client, d time.Duration) (Place, error) {
	p.mu.Lock()
	h := p.join(c)
	if p.free(h) {
		p.take(h)
		p.mu.Unlock()
		return Place{p, h}, nil
	}
	path := c.Path()
	if d <= 0 || p.turns.Len() >= mostWaiting && !p.displace(path) {
		p.part(h)
		p.mu.Unlock()
		return Place{}, ErrBusy
	}
	w := &placeWaiter{holder: h, path: path, ready: make(chan error, 1)}
	p.turns.Push(path, w)
	p.mu.Unlock()
	return p.wait(ctx, w, d)
}

// wait waits for w's turn.
func (p *Places) wait(ctx context.Context, w *placeWaiter, d time.Duration) (Place, error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	var err error
	select {
	case err = <-w.ready:
		return p.settle(w, err)
	case <-timer.C:
		err = ErrBusy
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	p.mu.Lock()
	queued := p.turns.Remove(w.path, w)
	if queued {
		p.part(w.holder)
	}
	p.mu.Unlock()
	if queued {
		return Place{}, err
	}
	place, err := p.settle(w, <-w.ready) // at the same moment
	if err == nil && ctx.Err() != nil {
		place.Leave()
		return Place{}, context.Cause(ctx)
	}
	return place, err
}

// settle returns the result of a wait.
func (p *Places) settle(w *placeWaiter, err error) (Place, error) {
	if err != nil {
		return Place{}, err
	}
	return Place{p, w.holder}, nil
}

// free reports whether a client may take a place now. The caller holds the lock.
func (p *Places) free(h holder) bool {
	free := p.most - p.taken
	if free <= 0 || p.most < keptFrom || free > p.most/keptPart {
		return free > 0
	}
	owner, key := h.shares[0], h.shares[1]
	return key.places < free && (owner.places < free || free > p.most/(2*keptPart))
}

// displace makes room for a waiter with this path. The caller holds the lock.
func (p *Places) displace(path []string) bool {
	w, ok := p.turns.Longest(path)
	if ok {
		p.turns.Remove(w.path, w)
		p.part(w.holder)
		w.ready <- ErrBusy
	}
	return ok
}

// take takes a place for a client that has joined. The caller holds the lock.
func (p *Places) take(h holder) {
	p.taken++
	for _, s := range h.shares {
		s.places++
	}
}

// Leave gives the place back.
func (l Place) Leave() {
	p := l.of
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	for _, s := range l.shares {
		s.places--
	}
	p.part(l.holder)
	for p.turns.Len() > 0 {
		w, ok := p.turns.Least(func(w *placeWaiter, depth int) (int, bool) {
			return w.shares[depth].places, p.free(w.holder)
		})
		if !ok {
			return
		}
		p.turns.Take(w.path, w)
		p.take(w.holder)
		w.ready <- nil
	}
}

// join adds a use to the shares of a client, and returns them. The caller holds the lock.
func (p *Places) join(c Client) holder {
	owner, key := p.owners[c.Owner], p.keys[c]
	if owner == nil {
		owner = p.unused()
		p.owners[c.Owner] = owner
	}
	if key == nil {
		key = p.unused()
		p.keys[c] = key
	}
	owner.uses++
	key.uses++
	return holder{c, [2]*share{owner, key}}
}

// unused returns a share that nothing uses.
func (p *Places) unused() *share {
	s := p.spare
	if s == nil {
		return new(share)
	}
	p.spare, s.next = s.next, nil
	return s
}

// part removes a use from the shares of a client. The caller holds the lock.
func (p *Places) part(h holder) {
	for i, s := range h.shares {
		if s.uses--; s.uses > 0 {
			continue
		}
		if i == 0 {
			delete(p.owners, h.client.Owner)
		} else {
			delete(p.keys, h.client)
		}
		s.next, p.spare = p.spare, s
	}
}
