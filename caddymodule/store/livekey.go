package store

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/scope"
	"github.com/postern-dev/postern/connector/panics"
)

// LiveKey is the current state of a key: its methods follow the store. It stays the same
// across changes of the key's record, so a request may keep it while it runs.
type LiveKey struct {
	record atomic.Pointer[keyRecord]

	mu    sync.Mutex
	calls map[*Call]struct{} // nil: none
}

// Key returns the record.
func (k *LiveKey) Key() Key {
	r := k.record.Load()
	key := r.Key
	key.LastUsedAt = r.use.last()
	return key
}

// ID returns the key's id.
func (k *LiveKey) ID() string { return k.record.Load().ID }

// Account returns the id of the account that the key belongs to.
func (k *LiveKey) Account() string { return k.record.Load().Account }

// Owner returns the id of the user who is responsible for the key. Without a user it is the id of
// the key itself. Requests with the same owner share scarce resources; only admins can create keys
// without a user.
func (k *LiveKey) Owner() string {
	r := k.record.Load()
	return cmp.Or(r.Owner, r.ID)
}

// GroupLimits returns the groups with limits that the key counts for, and the lowest of their limits. It looks nothing
// up.
func (k *LiveKey) GroupLimits() (groups []limits.Subject, lowest limits.UsageLimits) {
	if b := k.record.Load().bound; b != nil {
		return b.limited, b.lowest
	}
	return nil, lowest
}

// Scope returns what the key may be used for.
func (k *LiveKey) Scope() scope.Scope { return k.record.Load().scope }

// DefaultModel returns the model of requests that name none, "" if they fail.
func (k *LiveKey) DefaultModel() string { return k.record.Load().DefaultModel }

// Priority returns the priority of the key's requests.
func (k *LiveKey) Priority() Priority {
	r := k.record.Load()
	p := cmp.Or(r.Priority, PriorityNormal)
	if order := Priorities(); r.bound != nil {
		p = order[max(slices.Index(order, p), r.bound.priority)]
	}
	return p
}

// Allows reports whether the key may be used for a deployment's public name.
func (k *LiveKey) Allows(name string) bool { return k.record.Load().scope.Allows(name) }

// Refusal is why a key is refused, or why its request was ended.
type Refusal string

// The reasons. "" means that the key is accepted.
const (
	RefusedRevoked  Refusal = "revoked"
	RefusedExpired  Refusal = "expired"
	RefusedDisabled Refusal = "disabled"
	RefusedRotated  Refusal = "rotated" // the secret has ended after a rotation
	// RefusedSuspended: the owner has not signed in by an issuer for too long.
	RefusedSuspended Refusal = "suspended"
	RefusedGroup     Refusal = "not_in_group"   // the owner is not in the group of the key: it is suspended
	RefusedAddress   Refusal = "ip_not_allowed" // the client's address is not allowed
	RefusedScope     Refusal = "out_of_scope"   // of running requests only
	RefusedStore     Refusal = "store_lost"     // by CutRequests; of running requests only
)

// refusal is [Store.refusal] as far as the record decides it.
func (r *keyRecord) refusal(secret digest, from netip.Addr, now func() time.Time) Refusal {
	switch {
	case r.RevokedAt != nil:
		return RefusedRevoked
	case secret != r.Hash && (secret != r.PreviousHash || !now().Before(r.Previous.Until)):
		return RefusedRotated
	case r.DisabledAt != nil:
		return RefusedDisabled
	case r.ExpiresAt != nil && r.expired(now()):
		return RefusedExpired
	case r.LeftGroup:
		return RefusedGroup
	case len(r.AllowedIPs) == 0:
		return ""
	}
	for _, network := range r.AllowedIPs {
		if network.Contains(from) {
			return ""
		}
	}
	return RefusedAddress
}

// refusal returns why a secret of a key is refused for a client at this address.
func (s *Store) refusal(r *keyRecord, secret digest, from netip.Addr, now func() time.Time) Refusal {
	why := r.refusal(secret, from, now)
	if why == "" && s.policy.Load().KeysNeed > 0 && s.Suspended(r.Owner, now()) {
		why = RefusedSuspended
	}
	return why
}

// Credential is a key with the secret by which it was found.
type Credential struct {
	*LiveKey
	store  *Store
	secret digest
}

// Refusal returns why the key is refused now for a client at this address.
func (c Credential) Refusal(from netip.Addr) Refusal {
	return c.store.refusal(c.record.Load(), c.secret, from, c.store.now)
}

// Call is a running request with a key.
type Call struct {
	credential Credential
	from       netip.Addr
	end        func(Refusal)

	deployment string // "" while unknown; guarded by the LiveKey
}

// Begin begins a request of a client at this address. end is called once when the request
// must end: when the key refuses it from now on, before the write that causes this returns,
// or within expiryLook of an expiry, or at once if the key refuses it already; and at CutRequests.
// end must return soon and must not write to the store.
func (c Credential) Begin(from netip.Addr, end func(Refusal)) *Call {
	call := &Call{credential: c, from: from, end: end}
	c.mu.Lock()
	if c.calls == nil { // most keys are idle
		c.calls = make(map[*Call]struct{})
	}
	c.calls[call] = struct{}{}
	c.mu.Unlock()
	// Check the key only now: later changes find the call.
	if why := c.Refusal(from); why != "" && call.End() {
		end(why)
	}
	return call
}

// End ends the request: from now on, Begin's end is not called, but a call that has begun may
// still be running. End reports whether the request was running.
func (c *Call) End() bool {
	k := c.credential.LiveKey
	k.mu.Lock()
	defer k.mu.Unlock()
	_, running := k.calls[c]
	delete(k.calls, c)
	return running
}

// AllowModel reports whether the key may be used for a deployment's public name. From now on, the
// request ends when the key may no longer be used for it.
func (c *Call) AllowModel(deployment string) bool {
	c.credential.mu.Lock()
	c.deployment = deployment
	c.credential.mu.Unlock()
	return c.credential.Allows(deployment)
}

// review ends the requests that the key no longer allows. The record must be in force already,
// so that requests that come later find it.
func (s *Store) review(k *LiveKey, now time.Time) {
	r := k.record.Load()
	clock := func() time.Time { return now }
	k.cut(func(c *Call) Refusal {
		why := s.refusal(r, c.credential.secret, c.from, clock)
		if why == "" && c.deployment != "" && !r.scope.Allows(c.deployment) {
			why = RefusedScope
		}
		return why
	})
}

// cut ends the requests for which why returns a reason.
func (k *LiveKey) cut(why func(*Call) Refusal) {
	for call, why := range k.take(why) {
		defer call.end(why) // all of them, even if one panics
	}
}

// take removes the requests for which why returns a reason, and returns them with it.
func (k *LiveKey) take(why func(*Call) Refusal) map[*Call]Refusal {
	k.mu.Lock()
	defer k.mu.Unlock()
	var taken map[*Call]Refusal
	for call := range k.calls {
		if why := why(call); why != "" {
			if taken == nil {
				taken = make(map[*Call]Refusal)
			}
			taken[call] = why
			delete(k.calls, call)
		}
	}
	return taken
}

// CutRequests ends the running requests of all keys. A request that begins meanwhile and
// calls Begin before Serving is ended or refused.
func (s *Store) CutRequests() {
	for r := range keyKind.all(&s.view.Load().records) {
		func() {
			defer panics.Recover(s.log, "ending the requests of a key")
			r.live.cut(func(*Call) Refusal { return RefusedStore })
		}()
	}
}
