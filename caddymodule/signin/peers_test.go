package signin

import (
	"errors"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// join passes what each desk publishes to the others.
func join(desks []*desk) {
	for _, from := range desks {
		from.publish = func(o Outcome) {
			for _, other := range desks {
				if other != from {
					other.Receive(o)
				}
			}
		}
		from.ceremonies.publish = from.publish
	}
}

// Each failure at one gateway counts once at all gateways, and is dropped at all.
func TestFailuresOfPeers(t *testing.T) {
	t.Parallel()
	desks := newDesks(t, "a", "b", "c")
	join(desks)
	now := time.Now()
	ann := desks[0].addUser(t, "ann")
	for _, d := range desks {
		d.now = func() time.Time { return now }
		wait.Until(t, "the user at all gateways", func() bool { _, ok := d.store.User(ann.ID); return ok })
	}
	throttles := func(d *desk) bool {
		err := d.guard.user(fair.Parse(home), nameKey("ann"), func() bool { return false }, d.now())
		return errors.As(err, new(*ThrottledError))
	}
	for i := range freeFailures {
		if _, err := desks[i%3].Password(t.Context(), attempt("ann", "wrong")); !errors.Is(err, ErrCredentials) {
			t.Fatal(err)
		}
	}
	for i, d := range desks {
		if !d.guard.users.Failed(nameKey("ann"), now) || throttles(d) {
			t.Errorf("desk %d does not count, or waits already", i)
		}
	}
	if _, err := desks[2].Password(t.Context(), attempt("ann", "wrong")); !errors.Is(err, ErrCredentials) {
		t.Fatal(err)
	}
	for i, d := range desks {
		if !throttles(d) {
			t.Errorf("desk %d does not wait", i)
		}
	}
	now = now.Add(addressDelay)
	desks[1].mustSignIn(t, home, "ann")
	for i, d := range desks {
		address := fair.Parse(home).Narrowest()
		if d.guard.users.Failed(nameKey("ann"), now) || d.guard.addresses.Failed(address, now) ||
			d.guard.pairs.Failed(pair{address, nameKey("ann")}, now) {
			t.Errorf("desk %d remembers failures", i)
		}
	}

	for range freeFailures + 1 {
		if _, err := desks[0].checkCurrent(t.Context(), ann, "wrong"); !errors.Is(err, ErrCredentials) {
			t.Fatal(err)
		}
	}
	if _, err := desks[1].checkCurrent(t.Context(), ann, rightPassword); !errors.As(err, new(*ThrottledError)) {
		t.Errorf("a password of a signed-in user: %v", err)
	}
	for range freeFailures + 1 {
		_, _ = desks[0].Link(t.Context(), elsewhere, "x")
	}
	if _, err := desks[2].Link(t.Context(), elsewhere, "x"); !errors.As(err, new(*ThrottledError)) {
		t.Errorf("a link: %v", err)
	}
}

// An answer to the challenge of a passkey works at only one gateway.
func TestAnswersOfPeers(t *testing.T) {
	t.Parallel()
	desks := newDesks(t, "a", "b")
	join(desks)
	one, two := desks[0], desks[1]
	ann, a := one.addUser(t, "ann"), newAuthenticator(t, origin)
	wait.Until(t, "the user", func() bool { _, ok := two.store.User(ann.ID); return ok })
	options, ceremony, err := one.BeginPasskey(t.Context(), ann, origin)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := two.FinishPasskey(t.Context(), ann, origin, ceremony, "phone", a.create(t, options)); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the passkey", func() bool { return len(one.store.Passkeys(ann.ID)) == 1 })
	options, ceremony, err = one.BeginPasskeySignIn(t.Context(), home, origin)
	if err != nil {
		t.Fatal(err)
	}
	answer := a.get(t, options)
	if _, err := one.FinishPasskeySignIn(t.Context(), Attempt{Address: home}, origin, ceremony, answer); err != nil {
		t.Fatal(err)
	}
	if _, err := two.FinishPasskeySignIn(t.Context(), Attempt{Address: home}, origin, ceremony, answer); !errors.Is(err,
		ErrPasskey) {
		t.Errorf("a second answer: %v", err)
	}
}
