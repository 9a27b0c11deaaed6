package signin

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
)

func TestBackOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		d.addUser(t, "ann")
		d.addUser(t, "bob")
		// Five failures are free.
		start := time.Now()
		d.fail(t, home, "ann", freeFailures+1)
		if waited := time.Since(start); waited != 0 {
			t.Errorf("the free failures took %v", waited)
		}
		derived := d.derived.Load()
		_, err := d.signIn(t, home, "ann", rightPassword)
		var throttled *ThrottledError
		if !errors.As(err, &throttled) || throttled.RetryAfter != time.Second {
			t.Fatalf("after six failures: %v", err)
		}
		if d.derived.Load() != derived {
			t.Error("a refused attempt was checked")
		}
		// The address waits whatever the name, and the name whatever the address,
		// known or not.
		for _, a := range []Attempt{{Address: home, Name: "bob"}, {Address: elsewhere, Name: "ANN"}} {
			if _, err := d.signIn(t, a.Address, a.Name, rightPassword); !errors.As(err, &throttled) {
				t.Errorf("%s from %s: %v", a.Name, a.Address, err)
			}
		}
		d.fail(t, "203.0.113.1", "nobody", freeFailures+1)
		if _, err := d.signIn(t, "203.0.113.2", "nobody", ""); !errors.As(err, &throttled) {
			t.Errorf("a name that no user has: %v", err)
		}
		d.mustSignIn(t, elsewhere, "bob")
		time.Sleep(time.Second)
		d.mustSignIn(t, home, "ann")
		// Success drops the failures of the user, also those at the address.
		start = time.Now()
		d.fail(t, home, "ann", freeFailures+1)
		if waited := time.Since(start); waited != 0 {
			t.Errorf("after a success the free failures took %v", waited)
		}
	})
}

// A client with an account cannot guess at others for free by signing in to its own: that drops only
// the failures with its own account.
func TestOwnSuccessDoesNotForgiveGuesses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		d.addUser(t, "mallory")
		start := time.Now()
		for i := range 10 {
			d.fail(t, home, fmt.Sprint("victim ", i), 1)
			d.fail(t, home, "mallory", 1)
			_, err := d.signIn(t, home, "mallory", rightPassword)
			if throttled, ok := errors.AsType[*ThrottledError](err); ok {
				time.Sleep(throttled.RetryAfter)
				d.mustSignIn(t, home, "mallory")
			}
		}
		// The guesses cause 1+2+4+8+16 seconds, the own failures twice that and one.
		if waited := time.Since(start); waited != (31+63)*time.Second {
			t.Errorf("ten guesses took %v", waited)
		}
	})
}

// Strangers who fail with a name do not keep its owner out: at an address where the owner is signed in
// the delay of the name does not count, and elsewhere it is short.
func TestStrangersDoNotLockOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		d.addUser(t, "ann")
		d.mustSignIn(t, "2001:db8::1", "ann")
		for i := range 50 {
			d.guard.failed(fair.Parse(fmt.Sprintf("203.0.113.%d", i)), nameKey("ann"), time.Now())
		}
		_, err := d.signIn(t, elsewhere, "ann", rightPassword)
		var throttled *ThrottledError
		if !errors.As(err, &throttled) || throttled.RetryAfter != userDelay {
			t.Errorf("from a new address: %v", err)
		}
		d.mustSignIn(t, "2001:db8::2", "ann")
		d.guard.failed(fair.Parse("203.0.113.1"), nameKey("ann"), time.Now())
		time.Sleep(userDelay)
		d.mustSignIn(t, elsewhere, "ann")
		// A known address is also throttled if it guesses.
		d.fail(t, elsewhere, "ann", freeFailures+1)
		if _, err := d.signIn(t, elsewhere, "ann", rightPassword); !errors.As(err, &throttled) {
			t.Errorf("after failures at a known address: %v", err)
		}
	})
}

// Concurrent attempts are counted like successive ones, except for the two that are checked at a time.
func TestParallelGuesses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		d.addUser(t, "ann")
		derived := d.derived.Load()
		d.slowDerivation()
		var wait sync.WaitGroup
		for range 32 {
			wait.Go(func() {
				if _, err := d.signIn(t, home, "ann", "wrong password"); err == nil {
					t.Error("a wrong password gets in")
				}
			})
		}
		wait.Wait()
		if n := d.derived.Load() - derived; n < freeFailures+1 ||
			int(n) > freeFailures+checkLimits.Slots-checkLimits.Spare {
			t.Errorf("%d guesses were checked at once", n)
		}
	})
}
