package fair

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

var testLimits = Limits{Slots: 4, Spare: 1, Waiting: 60, Wait: 8 * time.Second, MaxTime: 5 * time.Second}

// take takes n slots at once.
func take(t *testing.T, s *Semaphore, n int, host string, isKnown bool) []*Slot {
	t.Helper()
	slots := make([]*Slot, n)
	for i := range slots {
		var err error
		if slots[i], err = s.Acquire(t.Context(), Parse(host), isKnown); err != nil {
			t.Fatal(err)
		}
	}
	return slots
}

// arrivals are the names of clients with a slot, and the errors of the others.
type arrivals struct {
	in    chan string
	slots chan *Slot // of these clients, in the same order
	away  chan error
}

func newArrivals() *arrivals {
	return &arrivals{make(chan string, 200), make(chan *Slot, 200), make(chan error, 200)}
}

func (a *arrivals) wait(ctx context.Context, s *Semaphore, host string, isKnown bool, name string) {
	go func() {
		p, err := s.Acquire(ctx, Parse(host), isKnown)
		if err != nil {
			a.away <- err
			return
		}
		a.slots <- p
		a.in <- name
	}()
	synctest.Wait() // in this order
}

func expectCounts(t *testing.T, s *Semaphore, wantInside, wantWaiting int) {
	t.Helper()
	if inside, waiting := s.Counts(); inside != wantInside || waiting != wantWaiting {
		t.Errorf("%d have a slot and %d wait, not %d and %d", inside, waiting, wantInside, wantWaiting)
	}
}

// Networks of the same size take turns, and so do smaller ones within each of them. Waiters that give
// up leave no state.
func TestTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := NewSemaphore(testLimits)
		a := newArrivals()
		for _, p := range take(t, s, 3, "198.51.100.1", false) {
			a.slots <- p
		}
		gone, leave := context.WithCancel(t.Context())
		a.wait(t.Context(), s, "2001:db8:0:100::1", false, "48a 56a first")
		a.wait(gone, s, "2001:db8:0:100::1", false, "gone")
		a.wait(t.Context(), s, "2001:db8:0:100::1", false, "48a 56a second")
		a.wait(t.Context(), s, "2001:db8:0:101::1", false, "48a 56a other 64")
		a.wait(t.Context(), s, "2001:db8:0:200::1", false, "48a 56b")
		a.wait(t.Context(), s, "2001:db8:1::1", false, "48b")
		a.wait(t.Context(), s, "192.0.2.1", false, "v4 first")
		a.wait(t.Context(), s, "192.0.2.1", false, "v4 second")
		a.wait(t.Context(), s, "192.0.2.2", false, "v4 other")
		if len(a.in) != 0 {
			t.Fatalf("%s came in when it was full", <-a.in)
		}
		leave()
		synctest.Wait()
		if len(a.away) != 1 {
			t.Error("who gave up still waits")
		}
		for i := range 100 { // neither they nor their networks leave state
			if _, err := s.Acquire(gone, Parse(fmt.Sprintf("192.0.2.%d", i%3)), false); err == nil {
				t.Fatal("a waiter that has given up gets a slot")
			}
		}
		expectCounts(t, s, 3, 8)
		for i, want := range []string{
			"48a 56a first", "48b", "v4 first", "48a 56b", "v4 other", "48a 56a other 64", "v4 second", "48a 56a second",
		} {
			p := <-a.slots
			p.Release()
			p.Release() // counts once
			synctest.Wait()
			if len(a.in) != 1 {
				t.Fatalf("%d came in for one who left", len(a.in))
			}
			if got := <-a.in; got != want {
				t.Errorf("number %d is %s, not %s", i, got, want)
			}
		}
		time.Sleep(time.Minute)
		expectCounts(t, s, 0, 0)
		if l := &s.lanes[strangers]; len(l.queue.inside)+len(l.queue.order)+len(l.waiting.byNetwork) != 0 {
			t.Errorf("left behind: %+v", l)
		}
	})
}

// Known clients do not wait for strangers, and neither keep the other out.
func TestKnownClientsDoNotWaitForStrangers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := NewSemaphore(testLimits)
		a := newArrivals()
		for i := range 50 {
			a.wait(t.Context(), s, fmt.Sprintf("10.0.%d.1", i), false, "stranger")
		}
		if len(a.in) != 3 || len(a.away) != 0 {
			t.Errorf("%d strangers came in, %d were sent away", len(a.in), len(a.away))
		}
		a.wait(t.Context(), s, "10.0.1.1", true, "known")
		if len(a.in) != 4 {
			t.Error("a known client waits")
		}
		a.wait(t.Context(), s, "10.0.2.1", true, "known 2")
		time.Sleep(testLimits.MaxTime)
		synctest.Wait()
		in := make(map[string]int)
		for range len(a.in) {
			in[<-a.in]++
		}
		if in["known 2"] != 1 || in["stranger"] != 6 {
			t.Errorf("after the first slots %v came in", in)
		}
		time.Sleep(time.Hour)

		for range 20 {
			a.wait(t.Context(), s, "10.0.2.1", true, "known")
		}
		a.wait(t.Context(), s, "10.0.1.1", false, "stranger")
		for range len(a.in) {
			in[<-a.in]++
		}
		if in["stranger"] < 7 {
			t.Error("known clients keep strangers out")
		}
		time.Sleep(time.Hour)
	})
}

// The wait is bounded, and so are the waiters of each network and in total.
func TestSendAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := NewSemaphore(testLimits)
		slots := take(t, s, 3, "198.51.100.1", false)
		for _, p := range slots {
			p.timer.Stop()
		}
		a := newArrivals()
		for range 40 {
			a.wait(t.Context(), s, "192.0.2.1", false, "")
		}
		if most := testLimits.Waiting/4 + 1; len(a.away) < 40-most {
			t.Errorf("of one address %d wait", 40-len(a.away))
		}
		for i := range 100 {
			a.wait(t.Context(), s, fmt.Sprintf("10.0.%d.1", i), false, "")
		}
		expectCounts(t, s, 3, testLimits.Waiting)
		start := time.Now()
		if _, err := s.Acquire(t.Context(), Parse("203.0.113.1"), false); !errors.Is(err, ErrBusy) || time.Since(start) != 0 {
			t.Errorf("one more: %v after %v", err, time.Since(start))
		}
		time.Sleep(testLimits.Wait)
		synctest.Wait()
		expectCounts(t, s, 3, 0)
		for len(a.away) > 0 {
			if err := <-a.away; !errors.Is(err, ErrBusy) {
				t.Errorf("sent away with %v", err)
			}
		}
		a.wait(t.Context(), s, "192.0.2.1", false, "")
		if s.Closed() {
			t.Error("it is closed by itself")
		}
		s.Close()
		s.Close()
		if !s.Closed() {
			t.Error("it is not closed")
		}
		synctest.Wait()
		if len(a.away) != 1 {
			t.Error("a closed semaphore keeps somebody waiting")
		}
		if _, err := s.Acquire(t.Context(), Parse("192.0.2.1"), true); !errors.Is(err, ErrBusy) {
			t.Errorf("after the close: %v", err)
		}
		for _, p := range slots {
			p.Release()
		}
		expectCounts(t, s, 0, 0)
	})
}
