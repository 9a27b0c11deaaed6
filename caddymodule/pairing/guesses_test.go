package pairing

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// A flood of networks does not fill the memory: there is an end to what is checked
// in the life of a code, what is refused leaves no trace, and what is old goes.
func TestGuessesAreBounded(t *testing.T) {
	t.Parallel()
	g := newGuesses()
	start := time.Unix(1_800_000_000, 0)
	now, checked, most := start, 0, 0
	for i := range 30_000 {
		now = start.Add(time.Duration(i) * guessMemory / 30_000)
		if g.begin(fmt.Sprintf("2001:%x:%x::1", i>>16, i&0xffff), now, true).wait == 0 {
			checked++
		}
		if g.begin(fmt.Sprintf("2001:%x:%x::1", i%1000>>16, i%1000), now, true).wait == 0 {
			checked++
		}
		if i%5000 == 0 {
			most = max(most, g.count())
		}
	}
	const all = firstBurst + againBurst + 2*guessesPerSec*int(guessMemory/time.Second)
	if checked > all || most > 3*all || checked < all*9/10 {
		t.Errorf("%d codes were checked, with %d times; there may be %d", checked, most, all)
	}
	g.begin("192.0.2.1", now.Add(time.Hour), true)
	if g.count() != 2 || len(g.times) != 2 {
		t.Errorf("%d times of %d networks after an hour", g.count(), len(g.times))
	}
}

// count returns how many times are kept.
func (g *guesses) count() (n int) {
	for _, times := range g.times {
		n += len(times)
	}
	return n
}

// A try that is taken back is as if it had not been, whenever that is.
func TestGuessTakenBack(t *testing.T) {
	t.Parallel()
	g := newGuesses()
	now := time.Unix(1_800_000_000, 0)
	var late []verdict
	for i := range 50 {
		v := g.begin("192.0.2.1", now, true)
		if v.wait != 0 {
			t.Fatalf("has to wait for %v", v.wait)
		}
		if i%2 == 0 {
			g.takeBack(v)
			continue
		}
		late = append(late, v)
		if now = now.Add(guessWindow); i > 40 {
			now = now.Add(guessMemory)
		}
		g.begin("192.0.2.2", now, true)
		g.takeBack(late[len(late)/2])
		late = late[:len(late)/2]
	}
	g.takeBack(verdict{})
	for _, v := range late {
		g.takeBack(v)
	}
	now = now.Add(guessMemory)
	g.begin("192.0.2.1", now, true)
	if g.count() != 2 || len(g.times[netip.MustParsePrefix("192.0.2.1/32")]) != 1 {
		t.Errorf("kept are %v", g.times)
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
