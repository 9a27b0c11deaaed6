package pairing

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/postern-dev/postern/caddymodule/fair"
)

// Limits on wrong codes. A code has 40 random bits and lives for 15 minutes. In
// that time at most 23,100 wrong codes are checked, from any number of networks:
// two bursts (5,000 and 100) and two rates (10 per second each). So the chance of
// guessing a code is 23,100 / 2^40 = 2e-8, and 6e-4 in a year in which one code is
// always open. Gateways of a cluster count together, except those that are cut off
// from each other. A guessed code alone gives no access: a user compares fingerprints.
const (
	// Per guessWindow, for an address or /64, for a /56, and for a /24 or /48.
	addressGuesses = 5
	siteGuesses    = 10
	networkGuesses = 20
	guessWindow    = time.Minute

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

// guesses holds the wrong codes of the last minutes. Rejected attempts are not
// recorded, so there are never more than 23,100 entries, in some 10 MB.
type guesses struct {
	mu      sync.Mutex
	first   *rate.Limiter                // for networks without a wrong code
	again   *rate.Limiter                // for networks with wrong codes
	times   map[netip.Prefix][]time.Time // wrong codes and codes being checked, within guessMemory
	swept   time.Time                    // last time that all of times was expired
	limited time.Time                    // last time that first or again rejected a code
}

// verdict decides whether a code may be checked.
type verdict struct {
	wait  time.Duration // 0: the code may be checked
	begun bool          // first code within guessMemory that the limits of all networks rejected
	from  fair.Networks // networks that the attempt counts for; nil: it does not count
	at    time.Time     // of the counted attempt
}

func newGuesses() *guesses {
	return &guesses{
		first: rate.NewLimiter(guessesPerSec, firstBurst),
		again: rate.NewLimiter(guessesPerSec, againBurst),
		times: make(map[netip.Prefix][]time.Time),
	}
}

// begin decides whether a code from an address may be checked now. If counts is
// set, it counts as wrong until takeBack, so that concurrent attempts cannot exceed
// the limits.
func (g *guesses) begin(address string, now time.Time, counts bool) verdict {
	from := fair.Parse(address)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expire(from, now)
	if wait := g.wait(from, now); wait > 0 {
		return verdict{wait: wait}
	}
	limiter := g.limiter(from)
	if limiter.TokensAt(now) < 1 {
		v := verdict{wait: limitPause, begun: g.limited.IsZero() || now.Sub(g.limited) >= guessMemory}
		g.limited = now
		return v
	}
	if !counts {
		return verdict{}
	}
	g.record(from, now)
	return verdict{from: from, at: now}
}

// add counts a wrong code that a peer has checked.
func (g *guesses) add(address string, now time.Time) {
	from := fair.Parse(address)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expire(from, now)
	g.record(from, now)
}

// limiter returns the rate limit of networks. The caller holds the lock.
func (g *guesses) limiter(from fair.Networks) *rate.Limiter {
	if g.times[from.Widest()] != nil {
		return g.again
	}
	return g.first
}

// record counts an attempt. The caller holds the lock.
func (g *guesses) record(from fair.Networks, now time.Time) {
	g.limiter(from).AllowN(now, 1)
	for _, p := range from {
		g.times[p] = append(g.times[p], now)
	}
}

// wait returns how long the networks must wait before the next code.
func (g *guesses) wait(from fair.Networks, now time.Time) (wait time.Duration) {
	for i, p := range from {
		most := siteGuesses
		switch i {
		case len(from) - 1:
			most = addressGuesses
		case 0:
			most = networkGuesses
		}
		times := g.times[p]
		oldest := slices.IndexFunc(times, func(at time.Time) bool { return now.Sub(at) < guessWindow })
		if oldest >= 0 && len(times)-oldest >= most {
			wait = max(wait, guessWindow-now.Sub(times[oldest]))
		}
	}
	return wait
}

// expire drops old entries of the given networks, and once per guessWindow of all.
func (g *guesses) expire(from fair.Networks, now time.Time) {
	if now.Sub(g.swept) >= guessWindow {
		g.swept = now
		from = slices.Collect(maps.Keys(g.times))
	}
	for _, p := range from {
		g.times[p] = slices.DeleteFunc(g.times[p], func(at time.Time) bool { return now.Sub(at) >= guessMemory })
		if len(g.times[p]) == 0 {
			delete(g.times, p)
		}
	}
}

// takeBack drops an attempt whose code was not wrong.
func (g *guesses) takeBack(v verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range v.from {
		times := g.times[p]
		if at := slices.IndexFunc(times, v.at.Equal); at >= 0 {
			times = slices.Delete(times, at, at+1)
		}
		if g.times[p] = times; len(times) == 0 {
			delete(g.times, p)
		}
	}
}

// isLimited reports whether the limits of all networks have rejected a code within
// limitShown.
func (g *guesses) isLimited(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.limited.IsZero() && now.Sub(g.limited) < limitShown
}
