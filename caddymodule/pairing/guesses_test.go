package pairing

import (
	"fmt"
	"testing"
	"time"
)

// A flood of addresses does not fill the memory: what is refused leaves no
// trace, and what is old goes.
func TestGuessesAreBounded(t *testing.T) {
	t.Parallel()
	var g guesses
	now := time.Unix(1_800_000_000, 0)
	for i := range 100_000 {
		g.begin(fmt.Sprintf("2001:db8:%x:%x::1", i>>16, i&0xffff), now.Add(time.Duration(i)*time.Millisecond), true)
		if len(g.notes) > totalGuesses || cap(g.notes) > 2*totalGuesses {
			t.Fatalf("%d notes, room for %d", len(g.notes), cap(g.notes))
		}
	}
	g.begin("192.0.2.1", now.Add(time.Hour), true)
	if len(g.notes) != 1 {
		t.Errorf("%d notes after an hour", len(g.notes))
	}
}

// A try that is taken back is as if it had not been.
func TestGuessTakenBack(t *testing.T) {
	t.Parallel()
	var g guesses
	now := time.Unix(1_800_000_000, 0)
	for range 100 {
		n, wait := g.begin("192.0.2.1", now, true)
		if wait != 0 {
			t.Fatalf("has to wait for %v", wait)
		}
		g.takeBack(n)
	}
	g.begin("192.0.2.1", now, true)
	g.takeBack(guess{})
	if len(g.notes) != 1 {
		t.Errorf("%d notes", len(g.notes))
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
