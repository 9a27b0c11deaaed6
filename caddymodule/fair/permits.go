package fair

import (
	"context"
	"sync"
	"time"
)

// Client is the sender of a request: a key and its owner, who may have many keys.
type Client struct{ Owner, Key string }

// Path returns the client's groups in [Turns].
func (c Client) Path() []string { return []string{c.Owner, c.Key} }

const (
	// scarceFrom is the number of permits from which the last ones are only for clients with few permits.
	scarceFrom = 16
	// scarcePart is the part of these last ones, as a divisor.
	scarcePart = 8
	// maxWaiting bounds the requests that wait for a permit.
	maxWaiting = 1024
)

// Permits divides a number of permits among clients. One key may have nearly all of them while the
// other clients send nothing. With 16 permits or more, the last eighth is reserved for keys that have
// fewer permits than are free, and the last sixteenth for owners that do. A released permit goes to
// the owner with the fewest, and to its key with the fewest.
type Permits struct {
	// Waiting bounds the waiting requests of a key; 0: only those of all are bounded. Set it before the first use.
	Waiting int

	total int

	mu     sync.Mutex
	taken  int
	owners map[string]*share
	keys   map[Client]*share
	spare  *share // list of unused shares, to avoid allocations
	turns  Turns[string, *permitWaiter]
}

// share is the share of a key or an owner. It exists while it has permits or waits for some.
type share struct {
	permits int
	uses    int // permits and waiters
	next    *share
}

// shares are the shares of a client.
type shares struct {
	client     Client
	owner, key *share
}

// Permit lets one request run.
type Permit struct {
	pool *Permits
	shares
}

// permitWaiter waits for a permit.
type permitWaiter struct {
	shares
	path  []string
	ready chan error // buffered; receives nil with the permit, ErrBusy when displaced
}

// NewPermits returns a number of free permits.
func NewPermits(total int) *Permits {
	return &Permits{total: total, owners: make(map[string]*share), keys: make(map[Client]*share)}
}

// Enter returns a permit, and waits for it up to d. It fails with ErrBusy or the cause of ctx's end. The
// caller must call [Permit.Leave] once.
func (p *Permits) Enter(ctx context.Context, c Client, d time.Duration) (Permit, error) {
	if ctx.Err() != nil {
		return Permit{}, context.Cause(ctx)
	}
	p.mu.Lock()
	s := p.join(c)
	if p.free(s) {
		p.take(s)
		p.mu.Unlock()
		return Permit{p, s}, nil
	}
	path := c.Path()
	full := p.Waiting > 0 && s.key.uses-s.key.permits > p.Waiting // with this one
	if d <= 0 || full || p.turns.Len() >= maxWaiting && !p.displace(path) {
		p.part(s)
		p.mu.Unlock()
		return Permit{}, ErrBusy
	}
	w := &permitWaiter{shares: s, path: path, ready: make(chan error, 1)}
	p.turns.Push(path, w)
	p.mu.Unlock()
	return p.wait(ctx, w, d)
}

// wait waits for w's turn.
func (p *Permits) wait(ctx context.Context, w *permitWaiter, d time.Duration) (Permit, error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	var err error
	select {
	case err = <-w.ready:
		return p.result(w, err)
	case <-timer.C:
		err = ErrBusy
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	p.mu.Lock()
	queued := p.turns.Remove(w.path, w)
	if queued {
		p.part(w.shares)
	}
	p.mu.Unlock()
	if queued {
		return Permit{}, err
	}
	permit, err := p.result(w, <-w.ready) // at the same moment
	if err == nil && ctx.Err() != nil {
		permit.Leave()
		return Permit{}, context.Cause(ctx)
	}
	return permit, err
}

// result returns the result of a wait.
func (p *Permits) result(w *permitWaiter, err error) (Permit, error) {
	if err != nil {
		return Permit{}, err
	}
	return Permit{p, w.shares}, nil
}

// free reports whether a client may take a permit now. The caller holds the lock.
func (p *Permits) free(s shares) bool {
	free := p.total - p.taken
	if free <= 0 || p.total < scarceFrom || free > p.total/scarcePart {
		return free > 0
	}
	return s.key.permits < free && (s.owner.permits < free || free > p.total/(2*scarcePart))
}

// displace removes a waiter for one with this path. The caller holds the lock.
func (p *Permits) displace(path []string) bool {
	w, ok := p.turns.Longest(path)
	if ok {
		p.turns.Remove(w.path, w)
		p.part(w.shares)
		w.ready <- ErrBusy
	}
	return ok
}

// take takes a permit for a client that has joined. The caller holds the lock.
func (p *Permits) take(s shares) {
	p.taken++
	s.owner.permits++
	s.key.permits++
}

// Leave releases the permit.
func (l Permit) Leave() {
	p := l.pool
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	l.owner.permits--
	l.key.permits--
	p.part(l.shares)
	for p.turns.Len() > 0 {
		w, ok := p.turns.Lowest(func(w *permitWaiter, depth int) (int, bool) {
			return [...]*share{w.owner, w.key}[depth].permits, p.free(w.shares)
		})
		if !ok {
			return
		}
		p.turns.Take(w.path, w)
		p.take(w.shares)
		w.ready <- nil
	}
}

// join adds a use to the shares of a client, and returns them. The caller holds the lock.
func (p *Permits) join(c Client) shares {
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
	return shares{c, owner, key}
}

// unused returns a share that nothing uses.
func (p *Permits) unused() *share {
	s := p.spare
	if s == nil {
		return new(share)
	}
	p.spare, s.next = s.next, nil
	return s
}

// part removes a use from the shares of a client. The caller holds the lock.
func (p *Permits) part(s shares) {
	if s.owner.uses--; s.owner.uses == 0 {
		delete(p.owners, s.client.Owner)
		s.owner.next, p.spare = p.spare, s.owner
	}
	if s.key.uses--; s.key.uses == 0 {
		delete(p.keys, s.client)
		s.key.next, p.spare = p.spare, s.key
	}
}
