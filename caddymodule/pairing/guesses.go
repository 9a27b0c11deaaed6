package pairing

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/postern-dev/postern/caddymodule/fair"
)

// Bounds of wrong codes. A code has 40 random bits and lives for 15 minutes. In
// that time at most 23,100 wrong codes are checked, from however many networks:
// two bursts (5,000 and 100) and two rates (10 a second each). So a code is found
// with a chance of 23,100 / 2^40 = 2e-8, and in a year in which always one is open
// with 6e-4. Who finds one has not got in: a person compares fingerprints.
const (
	// In a minute: of an address or /64, of a /56, and of a /24 or /48.
	addressGuesses = 5
	siteGuesses    = 10
	networkGuesses = 20
	guessWindow    = time.Minute

	// guessMemory is how long a network (/24, /48) counts as one that guesses.
	// Those that do share one rate; each of the others has its first code checked
	// within another one. So an attack uses that up only with as many new networks
	// as its burst has room for, and then 10 more in each second.
	guessMemory   = 15 * time.Minute
	guessesPerSec = 10
	firstBurst    = 5000
	againBurst    = 100

	// limitPause is when a device is asked to come back after one of the two has
	// refused it, and limitShown how long that is shown.
	limitPause = 10 * time.Second
	limitShown = time.Minute
)

// guesses are the wrong codes of the last minutes. What is refused is not noted,
// so that there are never more than the 23,100, with some 10 MB.
type guesses struct {
	mu      sync.Mutex
	first   *rate.Limiter                // of networks that have not guessed
	again   *rate.Limiter                // of those that have
	times   map[netip.Prefix][]time.Time // of guessMemory: of wrong codes, and of those being checked
	swept   time.Time                    // when all of times was last
	limited time.Time                    // when first or again have refused last
}

// verdict is whether a code may be checked.
type verdict struct {
	wait  time.Duration // 0: it may
	begun bool          // it is the first in guessMemory refused because of the guesses of all networks
	from  fair.Networks // which it counts for, at a time; nil: it does not
	at    time.Time
}

func newGuesses() *guesses {
	return &guesses{
		first: rate.NewLimiter(guessesPerSec, firstBurst),
		again: rate.NewLimiter(guessesPerSec, againBurst),
		times: make(map[netip.Prefix][]time.Time),
	}
}

// begin returns whether a code from an address may be checked now. With counts set
// it counts as wrong until it is taken back, so that many at once cannot pass
// together.
func (g *guesses) begin(address string, now time.Time, counts bool) verdict {
	from := fair.Parse(address)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expire(from, now)
	if wait := g.wait(from, now); wait > 0 {
		return verdict{wait: wait}
	}
	limiter := g.first
	if g.times[from.Widest()] != nil {
		limiter = g.again
	}
	if limiter.TokensAt(now) < 1 {
		v := verdict{wait: limitPause, begun: g.limited.IsZero() || now.Sub(g.limited) >= guessMemory}
		g.limited = now
		return v
	}
	if !counts {
		return verdict{}
	}
	limiter.AllowN(now, 1)
	for _, p := range from {
		g.times[p] = append(g.times[p], now)
	}
	return verdict{from: from, at: now}
}

// wait returns how long none of the networks may try a code.
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

// expire drops what is old, of some networks and once in guessWindow of all.
func (g *guesses) expire(from fair.Networks, now time.Time) {
	isOld := func(at time.Time) bool { return now.Sub(at) >= guessMemory }
	for _, p := range from {
		g.drop(p, isOld)
	}
	if now.Sub(g.swept) >= guessWindow {
		g.swept = now
		for p := range g.times {
			g.drop(p, isOld)
		}
	}
}

func (g *guesses) drop(p netip.Prefix, which func(time.Time) bool) {
	if g.times[p] = slices.DeleteFunc(g.times[p], which); len(g.times[p]) == 0 {
		delete(g.times, p)
	}
}

// takeBack drops a try whose code was not wrong.
func (g *guesses) takeBack(v verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range v.from {
		found := false
		g.drop(p, func(at time.Time) bool {
			isFirst := !found && at.Equal(v.at)
			found = found || isFirst
			return isFirst
		})
	}
}

// isLimited reports whether codes were refused lately because of the guesses of
// all networks.
func (g *guesses) isLimited(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.limited.IsZero() && now.Sub(g.limited) < limitShown
}
