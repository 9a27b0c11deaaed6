package signin

import (
	"crypto/sha256"
	"net/netip"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
)

const (
	freeFailures = 5
	addressDelay = 15 * time.Minute // maximum
	// userDelay is the maximum for users. It is short because others can cause it: with
	// 15 minutes, anyone who knows a name could lock its owner out.
	userDelay   = 30 * time.Second
	forgetAfter = time.Hour // after the last failure
	maxEntries  = 10_000    // of each table
)

// guard counts failures and delays clients after too many.
type guard struct {
	addresses *fair.Attempts[netip.Prefix]
	users     *fair.Attempts[subject]
}

// subject identifies a user or a name entered. It is a hash, since the text entered may
// be long, and may be a password.
type subject [sha256.Size]byte

func newGuard(edges fair.Edges) *guard {
	return &guard{
		addresses: fair.NewAttempts[netip.Prefix](fair.Delays{
			Free: freeFailures, First: time.Second, Max: addressDelay, Forget: forgetAfter, Size: maxEntries, Edges: edges,
		}),
		users: fair.NewAttempts[subject](fair.Delays{
			Free: freeFailures, First: time.Second, Max: userDelay, Forget: forgetAfter, Size: maxEntries, Edges: edges,
		}),
	}
}

// nameKey returns the key of a name. Names are compared in lower case.
func nameKey(name string) subject { return sha256.Sum256([]byte("name\x00" + strings.ToLower(name))) }

// userKey returns the key of a user who confirms the current password. It is
// separate from the name, with which anyone can fail.
func userKey(userID string) subject { return sha256.Sum256([]byte("user\x00" + userID)) }

func throttled(wait time.Duration) error {
	if wait <= 0 {
		return nil
	}
	return &ThrottledError{RetryAfter: wait}
}

// checkAddress returns an error if a client must wait.
func (g *guard) checkAddress(client fair.Networks, now time.Time) error {
	return throttled(g.addresses.Wait(client.Narrowest(), now))
}

// checkUser returns an error if a client must wait to try a user. At an address known
// for the user, failures from elsewhere do not count. known is called only when it
// matters, so that its timing does not reveal which users exist.
func (g *guard) checkUser(client fair.Networks, user subject, known func() bool, now time.Time) error {
	wait := g.addresses.Wait(client.Narrowest(), now)
	if others := g.users.Wait(user, now); others > wait && !known() {
		wait = others
	}
	return throttled(wait)
}

// addressFailed counts a failure without a name.
func (g *guard) addressFailed(client fair.Networks, now time.Time) {
	g.addresses.Fail(client.Narrowest(), now)
}

// failed counts a failure.
func (g *guard) failed(client fair.Networks, user subject, now time.Time) {
	g.addressFailed(client, now)
	g.users.Fail(user, now)
}

// succeeded drops the user's failures, and as many of the client. The client's other
// failures remain: otherwise a user could guess at other users for free.
func (g *guard) succeeded(client fair.Networks, user subject) {
	g.addresses.Forgive(client.Narrowest(), g.users.Forgive(user, -1))
}
