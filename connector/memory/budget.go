package memory

import (
	"errors"
	"sync"
)

// ErrExceeded means that the budget is full, or that the share of a key or an account is.
var ErrExceeded = errors.New("the process holds as many bytes of requests and answers as it may")

// Shares follow dynamic thresholds, as in shared buffers of switches (Choudhury and Hahne,
// 1998): the limit of a key, a user or an account depends on the free bytes. A single one can use
// most of the budget, and another one still finds room.
const (
	keyThreshold     = 1 // a key, or a user with all keys, may hold this many times the bytes that stay free
	accountThreshold = 2 // an account may hold this many times the bytes that stay free
	// An owner of keys, a user or the account, may always hold 1/guaranteed of the budget if it is
	// free, however much its account holds. So may each of the keys, until the owner holds
	// guaranteedThreshold times the bytes that stay free: many keys must not fill the budget.
	guaranteed          = 64
	guaranteedThreshold = 3
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
	OverShare   uint64 // reservations refused because the key, user or account held too much
}

// owner is a key with its owner, who is a user or the account. Without a key, it is all keys of
// the owner; without both, the account.
type owner struct{ account, owner, key string }

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

// Open returns an empty reservation for a key of an account. The owner of the key is a user or the
// account. All may be "": then the reservation may take all free bytes. A nil budget is unbounded.
func (b *Budget) Open(account, of, key string) Reservation {
	return Reservation{budget: b, owner: owner{account, of, key}}
}

// Reservation is the part of a budget that one request holds. The zero value is
// unbounded. It is safe for concurrent use. After copying it, the original must not be
// used.
type Reservation struct {
	budget *Budget
	owner
	held    int64
	ofKey   *share // nil while nothing is held
	ofOwner *share
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
		r.ofKey, r.ofOwner, r.ofWhole = b.join(r.owner), b.join(r.all()), b.join(owner{account: r.account})
	}
	refused := more > 0 && b.refuses(r, more)
	if !refused {
		r.held += more
		b.stats.Held += more
		if r.ofKey != nil {
			r.ofKey.held += more
			r.ofOwner.held += more
			r.ofWhole.held += more
		}
	}
	if r.held == 0 && r.ofKey != nil {
		b.leave(r.owner, r.ofKey)
		b.leave(r.all(), r.ofOwner)
		b.leave(owner{account: r.account}, r.ofWhole)
		r.ofKey, r.ofOwner, r.ofWhole = nil, nil, nil
	}
	if refused {
		return ErrExceeded
	}
	return nil
}

// all returns all keys of the owner of a key.
func (o owner) all() owner { return owner{account: o.account, owner: o.owner} }

// refuses reports whether a reservation must not grow by more bytes, and counts the
// refusal. A key or a user with a single reservation is only bounded by the account.
func (b *Budget) refuses(r *Reservation, more int64) bool {
	free := b.stats.Total - b.stats.Held - more // afterwards
	if free < 0 {
		b.stats.Full++
		return true
	}
	if r.ofKey == nil {
		return false
	}
	ofKey, ofOwner, ofAccount := r.ofKey.held+more, r.ofOwner.held+more, r.ofWhole.held+more
	switch least := b.stats.Total / guaranteed; {
	case ofOwner <= least, ofKey <= least && ofOwner <= guaranteedThreshold*free:
		return false
	case ofAccount > accountThreshold*free,
		ofKey > keyThreshold*free && r.ofKey.held > r.held,
		ofOwner > keyThreshold*free && r.ofOwner.held > r.held && r.owner.owner != r.account:
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
