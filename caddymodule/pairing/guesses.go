package pairing

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/postern-dev/postern/caddymodule/fair"
)

// Limits on wrong codes, for pairing and set-up codes together. A code has 40 random bits and lives for 15 minutes. In
// that time at most 23,100 wrong codes are checked, from any number of networks:
// two bursts (5,000 and 100) and two rates (10 per second each). So the chance of
// guessing a code is 23,100 / 2^40 = 2e-8, and 6e-4 in a year in which one code is
// always open. Each edge of a cluster has its share of the bursts and the rates. A
// guessed pairing code alone gives no access: a user compares fingerprints.
const (
	// guessMemory is how long a network (/24, /48) is remembered after a wrong
	// code. Remembered networks share one rate limit; the first code of any other
	// network counts against a second one. An attack exhausts the second limit
	// only with 5,000 new networks, and 10 more per second after that.
	guessMemory   = 15 * time.Minute
	guessesPerSec = 10
	firstBurst    = 5000
	againBurst    = 100

	// limitPause is when a device may retry after one of the two limits has
	// rejected it, and limitShown how long users see that.
	limitPause = 10 * time.Second
	limitShown = time.Minute
)

// delays returns the delays of an address or network, which may send n wrong codes at once, and then
// one per pause, at all edges together. They are short for networks, so that a guesser does not keep its neighbors out.
func delays(n int, pause time.Duration, edges fair.Edges) fair.Delays {
	const size = 25_000 // more than the codes that are checked within guessMemory; takes some 5 MB
	return fair.Delays{Free: n - 1, First: pause, Max: pause, Forget: guessMemory, Size: size, Edges: edges}
}

// guesses counts wrong codes, and codes being checked. Rejected codes do not count.
type guesses struct {
	edges     fair.Edges
	mu        sync.Mutex
	first     *rate.Limiter // for networks without a wrong code
	again     *rate.Limiter // for networks with wrong codes
	addresses *fair.Attempts[netip.Prefix]
	sites     *fair.Attempts[netip.Prefix]
	networks  *fair.Attempts[netip.Prefix]
	limited   time.Time // last time that first or again rejected a code
}

// verdict decides whether a code may be checked.
type verdict struct {
	wait        time.Duration // 0: the code may be checked
	limitBegins bool          // first code within guessMemory that the limits of all networks rejected
	from        fair.Networks // networks that the code counts for; nil: it does not count
}

func newGuesses(edges fair.Edges) *guesses {
	return &guesses{
		edges:     edges,
		first:     rate.NewLimiter(guessesPerSec, firstBurst),
		again:     rate.NewLimiter(guessesPerSec, againBurst),
		addresses: fair.NewAttempts[netip.Prefix](delays(5, time.Minute, edges)),    // addresses and /64s
		sites:     fair.NewAttempts[netip.Prefix](delays(10, 6*time.Second, edges)), // /56s
		networks:  fair.NewAttempts[netip.Prefix](delays(20, 3*time.Second, edges)), // /24s and /48s
	}
}

// attempts returns the failures of networks of the size of from[i].
func (g *guesses) attempts(from fair.Networks, i int) *fair.Attempts[netip.Prefix] {
	switch i {
	case len(from) - 1:
		return g.addresses
	case 0:
		return g.networks
	}
	return g.sites
}

// limiter returns the rate limit of networks, as this edge's share. The caller holds the lock.
func (g *guesses) limiter(from fair.Networks, now time.Time) *rate.Limiter {
	l, burst := g.first, firstBurst
	if g.attempts(from, 0).Failed(from.Widest(), now) {
		l, burst = g.again, againBurst
	}
	n := g.edges.Count()
	l.SetLimitAt(now, guessesPerSec/rate.Limit(n))
	l.SetBurstAt(now, max(1, burst/n))
	return l
}

// begin decides whether a code from an address may be checked now. If counts is
// set, the code counts as wrong until forgive, so that concurrent guesses cannot
// exceed the limits.
func (g *guesses) begin(address string, now time.Time, counts bool) (v verdict) {
	from := fair.Parse(address)
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, p := range from {
		v.wait = max(v.wait, g.attempts(from, i).Wait(p, now))
	}
	switch {
	case v.wait > 0:
	case g.limiter(from, now).TokensAt(now) < 1:
		v = verdict{wait: limitPause, limitBegins: g.limited.IsZero() || now.Sub(g.limited) >= guessMemory}
		g.limited = now
	case counts:
		v.from = from
		g.record(from, now)
	}
	return v
}

// record counts a code as wrong. The caller holds the lock.
func (g *guesses) record(from fair.Networks, now time.Time) {
	g.limiter(from, now).AllowN(now, 1)
	for i, p := range from {
		g.attempts(from, i).Fail(p, now)
	}
}

// forgive uncounts a code that was not wrong.
func (g *guesses) forgive(v verdict) {
	for i, p := range v.from {
		g.attempts(v.from, i).Forgive(p, 1)
	}
}

// isLimited reports whether the limits of all networks have rejected a code within
// limitShown.
func (g *guesses) isLimited(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.limited.IsZero() && now.Sub(g.limited) < limitShown
}
