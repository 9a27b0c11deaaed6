package pairing

import (
	"fmt"
	"testing"
	"time"
)

// The number of codes that are checked during the life of a code is bounded for any number of networks. The edges of a
// cluster share it.
func TestGuessesAreBounded(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_800_000_000, 0)
	for _, edges := range []int{1, 3} {
		checked := 0
		for range edges {
			g := newGuesses(func() int { return edges })
			for i := range 30_000 {
				now := start.Add(time.Duration(i) * guessMemory / 30_000)
				if g.begin(fmt.Sprintf("2001:%x:%x::1", i>>16, i&0xffff), now, true).wait == 0 {
					checked++
				}
			}
		}
		const all = guessBurst + guessesPerSec*int(guessMemory/time.Second)
		if checked > all || checked < all*9/10 {
			t.Errorf("%d edges have checked %d codes; there may be %d", edges, checked, all)
		}
	}
}

// An edge that leaves gives its share to the others.
func TestSharesOfGuesses(t *testing.T) {
	t.Parallel()
	edges := 3
	g := newGuesses(func() int { return edges })
	now := time.Unix(1_800_000_000, 0)
	guess := func() (wait time.Duration) { return g.begin("192.0.2.1", now, true).wait }
	for i, want := range []time.Duration{0, 0, 3 * time.Minute} {
		if wait := guess(); wait != want {
			t.Errorf("code %d at an edge of three waits for %v, not %v", i+1, wait, want)
		}
	}
	edges = 1
	if wait := guess(); wait != 0 {
		t.Errorf("a single edge checks fewer than five codes: it waits for %v", wait)
	}
}

// A forgiven code has no effect.
func TestGuessTakenBack(t *testing.T) {
	t.Parallel()
	g := newGuesses(nil)
	now := time.Unix(1_800_000_000, 0)
	for range 50 {
		v := g.begin("192.0.2.1", now, true)
		if v.wait != 0 {
			t.Fatalf("has to wait for %v", v.wait)
		}
		g.forgive(v)
	}
	g.forgive(admission{})
	if g.networks.Forgive(networkOf("192.0.2.1"), 1) != 0 {
		t.Error("the network is remembered")
	}
}

// A network that guesses waits for a minute, however long that continues.
func TestWaitsAreBrief(t *testing.T) {
	t.Parallel()
	g := newGuesses(nil)
	now := time.Unix(1_800_000_000, 0)
	checked := 0
	for range 600 { // for ten minutes
		now = now.Add(time.Second)
		if g.begin("192.0.2.1", now, true).wait == 0 {
			checked++
		}
	}
	if checked != guessesAtOnce+9 {
		t.Errorf("a network guessed %d times", checked)
	}
	if wait := g.begin("192.0.2.1", now, false).wait; wait <= 0 || wait > time.Minute {
		t.Errorf("the network waits for %v", wait)
	}
}

func TestInWords(t *testing.T) {
	t.Parallel()
	for wait, want := range map[time.Duration]string{
		time.Nanosecond:                "1 second",
		time.Second:                    "1 second",
		time.Second + time.Millisecond: "2 seconds",
		90 * time.Second:               "90 seconds",
		91 * time.Second:               "2 minutes",
		15 * time.Minute:               "15 minutes",
	} {
		if got := inWords(wait); got != want {
			t.Errorf("%v is %q, not %q", wait, got, want)
		}
	}
}
