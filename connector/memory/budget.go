package memory

import (
	"errors"
	"sync"
)

// ErrExceeded means that the budget, or the share of a key or an account, is used up.
var ErrExceeded = errors.New("the memory for requests and answers is used up")

// Shares follow dynamic thresholds, as in shared buffers of switches (Choudhury and Hahne, 1998): the limits
// depend on the bytes that stay free. Below a guarantee, limits do not apply.
//
//	who               limit                     guarantee
//	key               keyThreshold × free       total / guaranteed, until its owner uses guaranteedThreshold × free
//	user              keyThreshold × free       total / guaranteed
//	account           accountThreshold × free   total / guaranteed, if it owns the key
const (
	keyThreshold        = 1
	accountThreshold    = 2
	guaranteed          = 64
	guaranteedThreshold = 3
)

// Budget bounds the bytes that a process reserves. Its zero value is not usable:
// see [NewBudget]. It is safe for concurrent use.
type Budget struct {
	mu     sync.Mutex
	stats  Stats
	shares map[holder]*share
	spare  *share // list of unused shares, to avoid allocations
	trim   func() // called when little is free; nil: there is no cache
}

// Stats is the state of a budget.
type Stats struct {
	Total, Reserved int64  // bytes
	Full            uint64 // reservations refused because the budget was full
	OverShare       uint64 // reservations refused because the key, user or account had reserved too much
}

// holder is a key with its owner, who is a user or the account. Without a key, it stands for all keys of
// the owner; without both, for the account.
type holder struct{ account, owner, key string }

// share is the share of one holder.
type share struct {
	bytes        int64
	reservations int // number
	next         *share
}

// NewBudget returns a budget of total bytes.
func NewBudget(total int64) *Budget {
	return &Budget{stats: Stats{Total: total}, shares: make(map[holder]*share)}
}

// Resize changes the total. Existing reservations stay, even if they exceed it.
func (b *Budget) Resize(total int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stats.Total = total
}

// cachePart is the part of a budget that a cache may use, as a divisor.
const cachePart = 8

// Excess returns how many bytes a cache of this size must give back. A budget serves at most one cache, which uses
// bytes that no reservation needs.
func (b *Budget) Excess(size int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return size - min(b.stats.Total/cachePart, b.stats.Total-b.stats.Reserved)
}

// Cache sets the function that trims the cache. It is called when a reservation may need its bytes.
func (b *Budget) Cache(trim func()) { b.trim = trim }

// Stats returns the state of the budget.
func (b *Budget) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stats
}

// Open returns an empty reservation for a key of an account. The owner of the key is a user or the
// account. All may be "": then the reservation may take all free bytes. A nil budget is unbounded.
func (b *Budget) Open(account, keyOwner, key string) Reservation {
	return Reservation{budget: b, holder: holder{account, keyOwner, key}}
}

// Reservation is the part of a budget that one request has reserved. The zero value is
// unbounded. It is safe for concurrent use. Once it is copied, only the copy may be used.
type Reservation struct {
	budget *Budget
	holder
	bytes     int64
	ofKey     *share // nil while nothing is reserved
	ofOwner   *share
	ofAccount *share
}

// Set changes the reservation to n bytes. Shrinking always succeeds. On [ErrExceeded] the
// reservation stays unchanged.
func (r *Reservation) Set(n int64) error {
	if r.budget == nil {
		return nil
	}
	b := r.budget
	b.mu.Lock()
	err := r.set(n)
	scarce := b.stats.Total-b.stats.Reserved < b.stats.Total/cachePart
	b.mu.Unlock()
	if scarce && b.trim != nil {
		b.trim()
	}
	return err
}

// Release gives all bytes back. The reservation may grow again.
func (r *Reservation) Release() {
	_ = r.Set(0) // shrinking always succeeds
}

// set implements Set. The caller holds the budget's lock.
func (r *Reservation) set(n int64) error {
	b, more := r.budget, n-r.bytes
	if more == 0 {
		return nil
	}
	if r.ofKey == nil && r.holder != (holder{}) {
		r.ofKey, r.ofOwner, r.ofAccount = b.join(r.holder), b.join(r.allKeys()), b.join(holder{account: r.account})
	}
	refused := more > 0 && b.refuses(r, more)
	if !refused {
		r.bytes += more
		b.stats.Reserved += more
		if r.ofKey != nil {
			r.ofKey.bytes += more
			r.ofOwner.bytes += more
			r.ofAccount.bytes += more
		}
	}
	if r.bytes == 0 && r.ofKey != nil {
		b.leave(r.holder, r.ofKey)
		b.leave(r.allKeys(), r.ofOwner)
		b.leave(holder{account: r.account}, r.ofAccount)
		r.ofKey, r.ofOwner, r.ofAccount = nil, nil, nil
	}
	if refused {
		return ErrExceeded
	}
	return nil
}

// allKeys returns the holder that stands for all keys of this holder's owner.
func (h holder) allKeys() holder { return holder{account: h.account, owner: h.owner} }

// refuses reports whether a reservation must not grow by more bytes, and counts the
// refusal. A key or a user with a single reservation is only bounded by the account.
func (b *Budget) refuses(r *Reservation, more int64) bool {
	free := b.stats.Total - b.stats.Reserved - more // afterwards
	if free < 0 {
		b.stats.Full++
		return true
	}
	if r.ofKey == nil {
		return false
	}
	ofKey, ofOwner, ofAccount := r.ofKey.bytes+more, r.ofOwner.bytes+more, r.ofAccount.bytes+more
	switch minimum := b.stats.Total / guaranteed; {
	case ofOwner <= minimum, ofKey <= minimum && ofOwner <= guaranteedThreshold*free:
		return false
	case ofAccount > accountThreshold*free,
		ofKey > keyThreshold*free && r.ofKey.bytes > r.bytes,
		ofOwner > keyThreshold*free && r.ofOwner.bytes > r.bytes && r.owner != r.account:
		b.stats.OverShare++
		return true
	}
	return false
}

// join adds a reservation to the share of a holder, and returns the share.
func (b *Budget) join(h holder) *share {
	s := b.shares[h]
	if s == nil {
		if s = b.spare; s != nil {
			b.spare, s.next = s.next, nil
		} else {
			s = new(share)
		}
		b.shares[h] = s
	}
	s.reservations++
	return s
}

// leave removes a reservation from a share.
func (b *Budget) leave(h holder, s *share) {
	if s.reservations--; s.reservations == 0 {
		delete(b.shares, h)
		s.next, b.spare = b.spare, s
	}
}
