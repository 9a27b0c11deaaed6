package signin

import (
	"crypto/sha256"
	"net/netip"
	"strings"
	"time"
)

// guard knows who has failed too often.
type guard struct {
	addresses *throttle[netip.Prefix]
	users     *throttle[who]
	pairs     *throttle[pair] // how many of an address's failures were of one user
}

// who stands for a user, or for a name that somebody typed. It is a hash,
// since what is typed there may be long, and may be a password.
type who [sha256.Size]byte

type pair struct {
	address netip.Prefix
	who     who
}

func newGuard() *guard {
	return &guard{
		addresses: newThrottle[netip.Prefix](addressDelay),
		users:     newThrottle[who](userDelay),
		pairs:     newThrottle[pair](0),
	}
}

// named is who has this name. Names are compared in lower case.
func named(name string) who { return sha256.Sum256([]byte("name\x00" + strings.ToLower(name))) }

// changing is the user as one who changes the password: apart from the name,
// with which strangers can fail.
func changing(userID string) who { return sha256.Sum256([]byte("user\x00" + userID)) }

// network is what one client is taken to have: an IPv4 address, or the /64 of
// an IPv6 address. What is not an address is one client.
func network(address string) netip.Prefix {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return netip.Prefix{}
	}
	ip = ip.Unmap().WithZone("")
	bits := 64
	if ip.Is4() {
		bits = 32
	}
	prefix, _ := ip.Prefix(bits) // no error: bits is in range
	return prefix
}

func throttled(wait time.Duration) error {
	if wait <= 0 {
		return nil
	}
	return &ThrottledError{RetryAfter: wait}
}

// address tells whether a client may try.
func (g *guard) address(client netip.Prefix, now time.Time) error {
	return throttled(g.addresses.wait(client, now))
}

// user tells whether a client may try a user. One that the user is known to
// come from need not wait for what others do with the name; it is asked for
// only when that matters, so that it adds no work that tells who is a user.
func (g *guard) user(client netip.Prefix, user who, known func() bool, now time.Time) error {
	wait := g.addresses.wait(client, now)
	if others := g.users.wait(user, now); others > wait && !known() {
		wait = others
	}
	return throttled(wait)
}

// failed counts a failure.
func (g *guard) failed(client netip.Prefix, user who, now time.Time) {
	g.addresses.failed(client, now)
	g.users.failed(user, now)
	g.pairs.failed(pair{client, user}, now)
}

// succeeded forgets the user's failures. Of the client's it forgets those with
// this user: others it must not, or an account of one's own would make guessing
// at others free.
func (g *guard) succeeded(client netip.Prefix, user who) {
	g.users.forgive(user, -1)
	if n := g.pairs.forgive(pair{client, user}, -1); n > 0 {
		g.addresses.forgive(client, n)
	}
}
