package cluster

import (
	"testing"
	"time"
)

// TestContactTimes has contacts be answered at all moments.
func TestContactTimes(t *testing.T) {
	var now Reading
	pass := func(d time.Duration) { now.Monotonic, now.Wall = now.Monotonic+d, now.Wall+d }
	c := newContact(func() Reading { return now }, time.Minute)
	serves := func(what string, want bool) {
		t.Helper()
		if c.serving() != want {
			t.Errorf("%s, it serves: %v", what, !want)
		}
	}
	serves("at first", false)
	s := c.send()
	pass(time.Second)
	c.confirm(s)
	serves("after a contact", true)
	for i := range 58 {
		pass(time.Second)
		if i < 50 { // that it goes ahead again and again adds up to nothing
			now.Wall += time.Duration(4*(i%2)-2) * time.Second
		}
		if _, gap, cut := c.tick(); gap || cut {
			t.Fatal("too early")
		}
	}
	if next, _, _ := c.tick(); next != time.Second {
		t.Errorf("the next look is in %v", next)
	}
	serves("59 s after it was sent", true)
	pass(time.Second)
	serves("at L after it was sent", false)
	if c.mayRun() {
		t.Error("answers go on")
	}
	if _, _, cut := c.tick(); !cut {
		t.Error("requests go on")
	}
	c.confirm(c.send())
	if serves("while requests are cut", false); c.mayRun() {
		t.Error("answers go on while their requests are cut")
	}
	if _, _, cut := c.tick(); !cut {
		t.Error("cutting is not repeated after a panic")
	}
	c.cut()
	if _, _, cut := c.tick(); cut {
		t.Error("requests end twice")
	}
	s = c.send()
	pass(6 * time.Second)
	if _, gap, _ := c.tick(); !gap {
		t.Error("a gap is not seen")
	}
	c.confirm(s)
	serves("after the answer to a contact that was sent before a gap", false)
	c.confirm(c.send())
	serves("after a contact that was sent later", true)
	now.Wall -= time.Hour
	serves("with the wall clock set back", false)
	if _, gap, cut := c.tick(); !gap || cut {
		t.Error("the wall clock set back is no gap, or ends requests")
	}
	for i := range 2 {
		now.Wall += 40 * time.Second // suspended
		if runs := c.mayRun(); runs != (i == 0) {
			t.Errorf("%d s after it was set back, answers go on: %v", 40*(i+1), runs)
		}
		if _, _, cut := c.tick(); cut != (i == 1) {
			t.Errorf("%d s after it was set back, requests end: %v", 40*(i+1), cut)
		}
	}
	c.cut()
	c.confirm(c.send())
	c.tick()
	pass(300 * time.Millisecond)
	now.Wall -= time.Hour
	pass(300 * time.Millisecond)
	c.confirm(c.send())
	if _, gap, cut := c.tick(); !gap || cut || c.age() > time.Second {
		t.Errorf("the wall clock set back before a contact: gap %v, requests end %v, age %v", gap, cut, c.age())
	}
	pass(300 * time.Millisecond)
	c.confirm(c.send())
	pass(300 * time.Millisecond)
	now.Wall -= time.Hour
	c.tick()
	now.Wall += 40 * time.Second // suspended
	c.tick()
	now.Wall += 40 * time.Second
	if _, _, cut := c.tick(); !cut {
		t.Error("the wall clock set back after a contact that was sent after the last look: requests go on")
	}
	c.cut()
	c.confirm(c.send())
	pass(5500 * time.Millisecond)
	serves("5.5 s after the last look at the clocks", false)
}
