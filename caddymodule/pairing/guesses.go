package pairing

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/postern-dev/postern/caddymodule/fair"
)

// Limits on wrong codes, for pairing and set-up codes together. A code has 40 random bits and lives for 15 minutes. In
// that time at most 23,000 wrong codes are checked, from any number of networks: a burst of 5,000, and 20 per second.
// So the chance of guessing a code is 23,000 / 2^40 = 2e-8, and 6e-4 in a year in which one code is always open. Each
// edge of a cluster has its share of the burst and the rate. A guessed pairing code alone gives no access: a user
// compares fingerprints.
const (
	guessesPerSec = 20
	guessBurst    = 5000

	// A network may send guessesAtOnce wrong codes, and then one per guessPause. So some thousand networks must send
	// them to exhaust the common limit.
	guessesAtOnce = 5
	guessPause    = time.Minute

	// guessMemory is how long wrong codes are remembered, for at most guessSize networks: more than the codes that are
	// checked in this time. They take some 5 MB.
	guessMemory = 15 * time.Minute
	guessSize   = 25_000

	// limitPause is how long a device must wait after the limit of all networks has
	// rejected it, and limitShown how long users see that.
	limitPause = 10 * time.Second
	limitShown = time.Minute
)

// guesses counts wrong codes, and codes being checked. Rejected codes do not count.
type guesses struct {
	edges    fair.Edges
	networks *fair.Attempts[netip.Prefix]

	mu      sync.Mutex
	all     *rate.Limiter // of all networks
	limited time.Time     // last time that it rejected a code
}

// admission is the result of begin: whether a code may be checked.
type admission struct {
	wait        time.Duration // 0: the code may be checked
	limitBegins bool          // first code within guessMemory that the limit of all networks rejected
	counts      bool          // the code counts as wrong until forgive
	from        netip.Prefix
}

func newGuesses(edges fair.Edges) *guesses {
	return &guesses{
		edges: edges,
		all:   rate.NewLimiter(guessesPerSec, guessBurst),
		networks: fair.NewAttempts[netip.Prefix](fair.Delays{
			Free: guessesAtOnce - 1, First: guessPause, Max: guessPause, Forget: guessMemory, Size: guessSize, Edges: edges,
		}),
	}
}

// networkOf returns the network of one guesser: an IPv4 address, or the /48 of an IPv6 address.
func networkOf(address string) netip.Prefix {
	networks := fair.Parse(address)
	if networks.Widest().Addr().Is4() {
		return networks.Narrowest()
	}
	return networks.Widest()
}

// begin decides whether a code from an address may be checked now. If counts is
// set, the code counts as wrong until forgive, so that concurrent guesses cannot
// exceed the limits.
func (g *guesses) begin(address string, now time.Time, counts bool) admission {
	from := networkOf(address)
	g.mu.Lock()
	defer g.mu.Unlock()
	if wait := g.networks.Wait(from, now); wait > 0 {
		return admission{wait: wait}
	}
	n := g.edges.Count()
	g.all.SetLimitAt(now, guessesPerSec/rate.Limit(n))
	g.all.SetBurstAt(now, guessBurst/n)
	if g.all.TokensAt(now) < 1 {
		begins := g.limited.IsZero() || now.Sub(g.limited) >= guessMemory
		g.limited = now
		return admission{wait: limitPause, limitBegins: begins}
	}
	if counts {
		g.all.AllowN(now, 1)
		g.networks.Fail(from, now)
	}
	return admission{counts: counts, from: from}
}

// forgive no longer counts a code as wrong for its network. It still counts for the limit of all networks.
func (g *guesses) forgive(a admission) {
	if a.counts {
		g.networks.Forgive(a.from, 1)
	}
}

// isLimited reports whether the limit of all networks has rejected a code within
// limitShown.
func (g *guesses) isLimited(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.limited.IsZero() && now.Sub(g.limited) < limitShown
}
