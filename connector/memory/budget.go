package memory

import (
	"errors"
	"sync"
)

// ErrExceeded means that the budget is full, or that the share of a key or an account is.
var ErrExceeded = errors.New("the process holds as many bytes of requests and answers as it may")

// Shares follow dynamic thresholds, as in shared buffers of switches (Choudhury and Hahne,
// 1998): the limit of a key or an account depends on the free bytes. A single one can use
// most of the budget, and another one still finds room.
const (
	keyThreshold     = 1 // a key may hold this many times the bytes that stay free
	accountThreshold = 2 // an account may hold this many times the bytes that stay free
	// A key may always hold 1/guaranteed of the budget if it is free, however much its
	// account holds.
	guaranteed = 64
)

// Budget bounds the bytes that a process holds. Its zero value is not usable:
// see [NewBudget]. It is safe for concurrent use.
type Budget struct {
	mu     sync.Mutex
	stats  Stats
	owners map[owner]*share
	spare  *share // list of unused shares, to avoid allocations
}

// Stats is the state of a budget.
type Stats struct {
	Total, Held int64  // bytes
	Full        uint64 // reservations refused because the budget was full
	OverShare   uint64 // reservations refused because the key or account held too much
}

// owner is a key of an account, or the account itself if key is "".
type owner struct{ account, key string }

// share is what one owner holds.
type share struct {
	held         int64
	reservations int // of this owner
	next         *share
}

// NewBudget returns a budget of total bytes.
func NewBudget(total int64) *Budget {
	return &Budget{stats: Stats{Total: total}, owners: make(map[owner]*share)}
}

// Resize changes the total. Existing reservations stay, even if they exceed it.
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

// Open returns an empty reservation for a key of an account. Both may be "": then the
// reservation may take all free bytes. A nil budget is unbounded.
func (b *Budget) Open(account, key string) Reservation {
	return Reservation{budget: b, owner: owner{account, key}}
}

// Reservation is the part of a budget that one request holds. The zero value is
// unbounded. It is safe for concurrent use. After copying it, the original must not be
// used.
type Reservation struct {
	budget *Budget
	owner
	held    int64
	ofKey   *share // nil while nothing is held
	ofWhole *share // the account's
}

// Grow takes n more bytes, or returns [ErrExceeded] and takes none.
func (r *Reservation) Grow(n int64) error {
	if r.budget == nil {
		return nil
	}
	r.budget.mu.Lock()
	defer r.budget.mu.Unlock()
	return r.set(r.held + n)
}

// Set changes the reservation to n bytes. Shrinking always succeeds. On [ErrExceeded] the
// reservation stays unchanged.
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
	_ = r.Set(0) // shrinking always succeeds
}

// set implements Set. The caller holds the budget's lock.
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

// refuses reports whether a reservation must not grow by more bytes, and counts the
// refusal. A key with a single reservation is only bounded by its account.
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

// join adds a reservation to the share of an owner, and returns the share.
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

// leave removes a reservation from a share.
func (b *Budget) leave(o owner, s *share) {
	if s.reservations--; s.reservations == 0 {
		delete(b.owners, o)
		s.next, b.spare = b.spare, s
	}
}
