package pairing

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Bounds of wrong codes. With 40 random bits in a code, and the 20 open ones
// that an account may have, a year of guessing finds one with a chance of
// 1 in 30,000.
const (
	addressGuesses = 5
	addressWindow  = time.Minute
	totalGuesses   = 50
	totalWindow    = 15 * time.Minute
)

// guesses are the wrong codes of the last minutes. What is refused is not
// noted, so that there are never more than totalGuesses, from however many
// addresses they come.
type guesses struct {
	mu    sync.Mutex
	notes []guess // in the order of their time
	last  uint64
}

// guess is one wrong code, or one that is being checked.
type guess struct {
	number uint64 // 0: none
	from   netip.Addr
	at     time.Time
}

// begin returns how long the address has to wait until it may try a code, 0 if
// it may now. With note set the try counts as wrong until it is taken back, so
// that many at once cannot pass together.
func (g *guesses) begin(address string, now time.Time, note bool) (guess, time.Duration) {
	from := group(address)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.notes = slices.DeleteFunc(g.notes, func(n guess) bool { return now.Sub(n.at) >= totalWindow })
	wait := time.Duration(0)
	if len(g.notes) >= totalGuesses {
		wait = totalWindow - now.Sub(g.notes[0].at)
	}
	var latest []time.Time // of this address
	for _, n := range g.notes {
		if n.from == from && now.Sub(n.at) < addressWindow {
			latest = append(latest, n.at)
		}
	}
	if len(latest) >= addressGuesses {
		wait = max(wait, addressWindow-now.Sub(latest[0]))
	}
	if wait > 0 || !note {
		return guess{}, wait
	}
	g.last++
	n := guess{number: g.last, from: from, at: now}
	g.notes = append(g.notes, n)
	return n, 0
}

// takeBack forgets a try whose code was not wrong.
func (g *guesses) takeBack(n guess) {
	if n.number == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.notes = slices.DeleteFunc(g.notes, func(o guess) bool { return o.number == n.number })
}

// group is what tries are counted by: the IPv4 address, or the /64 of an IPv6
// address, which is what one customer has of them. What is no address is one
// group.
func group(address string) netip.Addr {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return netip.Addr{}
	}
	ip = ip.Unmap().WithZone("")
	if prefix, err := ip.Prefix(64); err == nil && ip.Is6() {
		return prefix.Addr()
	}
	return ip
}
