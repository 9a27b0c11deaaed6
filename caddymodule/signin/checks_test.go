package signin

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// flood runs 60 clients until the test ends. Each sends made-up names from ever new addresses.
func (d *desk) flood(t *testing.T, ctx context.Context) {
	for i := range 60 {
		go func() {
			for n := 0; ctx.Err() == nil; n++ {
				_, err := d.Password(ctx, Attempt{
					Address: fmt.Sprintf("10.%d.%d.1", i, n%256), Name: fmt.Sprint("nobody ", i, n),
					Password: rightPassword,
				})
				if errors.Is(err, ErrBusy) {
					time.Sleep(time.Millisecond)
				}
			}
		}()
	}
	synctest.Wait()
}

// slowDerivation takes as long as the real derivation.
func (d *desk) slowDerivation() {
	derive := d.derive
	d.derive = func(password, salt []byte, c cost, size int) []byte {
		time.Sleep(50 * time.Millisecond)
		return derive(password, salt, c, size)
	}
}

// While strangers try made-up names from ever new addresses, a user signs in within seconds, and at
// once from an address where the user is signed in.
func TestSignInDespiteAFlood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		user := d.addUser(t, "ann")
		d.mustSignIn(t, home, "ann")
		d.slowDerivation()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		d.flood(t, ctx)
		for try := range 4 {
			start := time.Now()
			must(t, errOf(d.signIn(t, fmt.Sprintf("198.51.100.%d", try), "ann", rightPassword)))
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
			start = time.Now()
			must(t, errOf(d.signIn(t, home, "ann", rightPassword)))
			if took := time.Since(start); took > 200*time.Millisecond {
				t.Errorf("where the user is signed in it took %v", took)
			}
		}
		start := time.Now()
		if err := d.ChangePassword(t.Context(), user.ID, "", rightPassword, newPassword); err != nil {
			t.Error(err)
		}
		if _, err := d.AddUser(t.Context(), store.DefaultAccount, "bob", rightPassword, store.RoleAdmin); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > 500*time.Millisecond {
			t.Errorf("for a client that is known it took %v", took)
		}
		stop()
		synctest.Wait()
		time.Sleep(time.Minute)
		if inside, waiting := d.checks.Counts(); inside+waiting != 0 {
			t.Errorf("%d are checked and %d wait", inside, waiting)
		}
	})
}

// A client that has waited too long gets ErrBusy, and a client that has left stops waiting.
func TestSlotsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		for range checkLimits.Slots - checkLimits.Spare {
			must(t, errOf(d.slot(t.Context(), anywhere, true)))
		}
		start := time.Now()
		if _, err := d.slot(t.Context(), anywhere, true); !errors.Is(err, ErrBusy) {
			t.Errorf("no permit came free: %v", err)
		}
		if waited := time.Since(start); waited != checkLimits.Wait {
			t.Errorf("it waited for %v, not %v", waited, checkLimits.Wait)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := d.slot(ctx, anywhere, true); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the browser has gone: %v", err)
		}
		if _, waiting := d.checks.Counts(); waiting != 0 {
			t.Errorf("%d still wait", waiting)
		}
	})
}
