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
	mu     sync.Mutex
	first  *rate.Limiter // of networks that have not guessed
	again  *rate.Limiter // of those that have
	notes  []note        // of guessMemory, in the order of their time
	minute int           // the first in notes that is of guessWindow
	base   uint64        // the number of notes[0]
	counts map[netip.Prefix]*count

	limited time.Time // when first or again have refused last
}

// note is one wrong code, or one that is being checked.
type note struct {
	from  fair.Networks
	at    time.Time
	taken bool // back: it does not count
}

// count is how many notes a network has.
type count struct{ memory, minute int }

// verdict is whether a code may be checked.
type verdict struct {
	guess uint64        // number of the note + 1, 0 without one
	wait  time.Duration // 0: it may
	begun bool          // it is the first in guessMemory refused because of the guesses of all networks
}

func newGuesses() *guesses {
	return &guesses{
		first:  rate.NewLimiter(guessesPerSec, firstBurst),
		again:  rate.NewLimiter(guessesPerSec, againBurst),
		counts: make(map[netip.Prefix]*count),
	}
}

// begin returns whether a code from an address may be checked now. With counts set
// it counts as wrong until it is taken back, so that many at once cannot pass
// together.
func (g *guesses) begin(address string, now time.Time, counts bool) verdict {
	from := fair.Parse(address)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expire(now)
	if wait := g.wait(from, now); wait > 0 {
		return verdict{wait: wait}
	}
	limiter := g.first
	if g.counts[from.Widest()] != nil {
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
	g.notes = append(g.notes, note{from: from, at: now})
	for _, p := range from {
		c := g.counts[p]
		if c == nil {
			c = new(count)
			g.counts[p] = c
		}
		c.memory++
		c.minute++
	}
	return verdict{guess: g.base + uint64(len(g.notes))}
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
		if c := g.counts[p]; c == nil || c.minute < most {
			continue
		}
		oldest := slices.IndexFunc(g.notes[g.minute:], func(n note) bool { return !n.taken && slices.Contains(n.from, p) })
		wait = max(wait, guessWindow-now.Sub(g.notes[g.minute+oldest].at))
	}
	return wait
}

// expire drops what is old.
func (g *guesses) expire(now time.Time) {
	for ; g.minute < len(g.notes) && now.Sub(g.notes[g.minute].at) >= guessWindow; g.minute++ {
		g.add(g.notes[g.minute], 0, -1)
	}
	old := 0
	for ; old < g.minute && now.Sub(g.notes[old].at) >= guessMemory; old++ {
		g.add(g.notes[old], -1, 0)
	}
	g.notes = g.notes[old:]
	g.minute -= old
	g.base += uint64(old)
}

// add changes the counts of a note's networks, unless it was taken back.
func (g *guesses) add(n note, memory, minute int) {
	if n.taken {
		return
	}
	for _, p := range n.from {
		c := g.counts[p]
		c.memory += memory
		c.minute += minute
		if c.memory == 0 {
			delete(g.counts, p)
		}
	}
}

// takeBack drops a try whose code was not wrong.
func (g *guesses) takeBack(v verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if v.guess <= g.base {
		return // none, or forgotten
	}
	at := int(v.guess - g.base - 1)
	minute := 0
	if at >= g.minute {
		minute = -1
	}
	g.add(g.notes[at], -1, minute)
	g.notes[at].taken = true
}

// isLimited reports whether codes were refused lately because of the guesses of
// all networks.
func (g *guesses) isLimited(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.limited.IsZero() && now.Sub(g.limited) < limitShown
}
