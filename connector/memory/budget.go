package memory

import (
	"errors"
	"sync"
)

// ErrExceeded is the refusal of a reservation: the budget is full, or too much
// of it would be one key's or one account's.
var ErrExceeded = errors.New("the process holds as many bytes of requests and answers as it may")

// Shares follow a dynamic threshold, as in shared buffers of switches (Choudhury and
// Hahne, 1998): the limit of a key or an account depends on the free bytes, so that one
// alone has most of the budget, and a newcomer still finds room.
const (
	keyThreshold     = 1 // a key may hold this many times what stays free
	accountThreshold = 2 // an account may hold this many times what stays free
	// A key may always hold this part of the budget, as far as it is free: small
	// requests of a key get through however much its account holds.
	guaranteed = 64
)

// Budget bounds the bytes that a process holds. Its zero value is not usable:
// see [NewBudget]. It is safe for concurrent use.
type Budget struct {
	mu     sync.Mutex
	stats  Stats
	owners map[owner]*share
	spare  *share // a list of unused ones, so that requests allocate none
}

// Stats is the state of a budget.
type Stats struct {
	Total, Held int64  // bytes
	Full        uint64 // reservations refused since there was not enough left
	OverShare   uint64 // reservations refused since the key or account held too much
}

// owner names whom bytes are held for: a key, or with key "" an account.
type owner struct{ account, key string }

// share is what one owner holds.
type share struct {
	held         int64
	reservations int // that count here
	next         *share
}

// NewBudget returns a budget of so many bytes.
func NewBudget(total int64) *Budget {
	return &Budget{stats: Stats{Total: total}, owners: make(map[owner]*share)}
}

// Resize changes the total. Nothing is taken away from reservations: if they
// hold more, there is no room until they hold less.
func (b *Budget) Resize(total int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stats.Total = total
}

// Stats returns the state of the budget.
func (b *Budget) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stats
}

// Open returns a reservation of no bytes for a key of an account, "" for neither. It
// has no effect until it grows. Without an account it may take all free bytes. A nil
// budget is unbounded.
func (b *Budget) Open(account, key string) Reservation {
	return Reservation{budget: b, owner: owner{account, key}}
}

// Reservation is what one request holds of a budget. The zero value belongs to
// no budget: it may grow without bound. It is safe for concurrent use. A copy
// takes its place: the original must not be used any longer.
type Reservation struct {
	budget *Budget
	owner
	held    int64
	ofKey   *share // nil while nothing is held
	ofWhole *share // the account's
}

// Grow takes n more bytes, or nothing and returns [ErrExceeded].
func (r *Reservation) Grow(n int64) error {
	if r.budget == nil {
		return nil
	}
	r.budget.mu.Lock()
	defer r.budget.mu.Unlock()
	return r.set(r.held + n)
}

// Set makes the reservation one of n bytes. Less than before always succeeds;
// else the reservation stays as it is if the error is [ErrExceeded].
func (r *Reservation) Set(n int64) error {
	if r.budget == nil {
		return nil
	}
	r.budget.mu.Lock()
	defer r.budget.mu.Unlock()
	return r.set(n)
}

// Release gives all bytes back. The reservation may grow again.
func (r *Reservation) Release() {
	_ = r.Set(0) // less always succeeds
}

// set does Set's work under the lock.
func (r *Reservation) set(n int64) error {
	b, more := r.budget, n-r.held
	if more == 0 {
		return nil
	}
	if r.ofKey == nil && r.owner != (owner{}) {
		r.ofKey, r.ofWhole = b.join(r.owner), b.join(owner{account: r.account})
	}
	refused := more > 0 && b.refuses(r, more)
	if !refused {
		r.held += more
		b.stats.Held += more
		if r.ofKey != nil {
			r.ofKey.held += more
			r.ofWhole.held += more
		}
	}
	if r.held == 0 && r.ofKey != nil {
		b.leave(r.owner, r.ofKey)
		b.leave(owner{account: r.account}, r.ofWhole)
		r.ofKey, r.ofWhole = nil, nil
	}
	if refused {
		return ErrExceeded
	}
	return nil
}

// refuses reports whether a reservation may not have more bytes, and counts it.
// A key that holds nothing else is bounded by its account alone.
func (b *Budget) refuses(r *Reservation, more int64) bool {
	free := b.stats.Total - b.stats.Held - more // afterwards
	if free < 0 {
		b.stats.Full++
		return true
	}
	if r.ofKey == nil {
		return false
	}
	ofKey, ofAccount := r.ofKey.held+more, r.ofWhole.held+more
	switch {
	case ofKey <= b.stats.Total/guaranteed:
		return false
	case ofAccount > accountThreshold*free, ofKey > keyThreshold*free && r.ofKey.held > r.held:
		b.stats.OverShare++
		return true
	}
	return false
}

// join returns the share of an owner for one more reservation.
func (b *Budget) join(o owner) *share {
	s := b.owners[o]
	if s == nil {
		if s = b.spare; s != nil {
			b.spare, s.next = s.next, nil
		} else {
			s = new(share)
		}
		b.owners[o] = s
	}
	s.reservations++
	return s
}

// leave ends a reservation's use of a share.
func (b *Budget) leave(o owner, s *share) {
	if s.reservations--; s.reservations == 0 {
		delete(b.owners, o)
		s.next, b.spare = b.spare, s
	}
}
