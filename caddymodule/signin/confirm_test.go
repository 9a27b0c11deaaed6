package signin

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

func TestConfirm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		d.addUser(t, "ann")
		signed := d.mustSignIn(t, home, "ann")
		time.Sleep(time.Hour)
		for range freeFailures + 1 {
			if _, err := d.Confirm(t.Context(), signed.Session, "wrong password"); !errors.Is(err, ErrCredentials) {
				t.Fatal(err)
			}
		}
		var throttled *ThrottledError
		if _, err := d.Confirm(t.Context(), signed.Session, rightPassword); !errors.As(err, &throttled) {
			t.Fatalf("after six failures: %v", err)
		}
		time.Sleep(throttled.RetryAfter)
		confirmed, err := d.Confirm(t.Context(), signed.Session, rightPassword)
		found, _, foundErr := d.Session(t.Context(), signed.Secret)
		if err != nil || foundErr != nil || !found.ConfirmedAt.Equal(confirmed.ConfirmedAt) ||
			time.Since(found.ConfirmedAt) > time.Second {
			t.Errorf("%v; the session is %+v", err, found)
		}
		must(t, d.SignOut(t.Context(), signed.Session))
		if _, err := d.Confirm(t.Context(), signed.Session, rightPassword); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("a session that has ended: %v", err)
		}
	})
}

func TestConfirmByPasskey(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	ann, bob := d.addUser(t, "ann"), d.addUser(t, "bob")
	hers, his := newAuthenticator(t, origin), newAuthenticator(t, origin)
	d.addPasskey(t, ann, hers, "phone")
	d.addPasskey(t, bob, his, "phone")
	signed := d.mustSignIn(t, home, "ann")
	confirm := func(a *authenticator) error {
		options, ceremony, err := d.BeginPasskeySignIn(t.Context(), home, origin)
		must(t, err)
		_, err = d.ConfirmByPasskey(t.Context(), signed.Session, home, origin, ceremony, a.get(t, options))
		return err
	}
	if err := confirm(his); !errors.Is(err, ErrPasskey) {
		t.Errorf("another user's passkey: %v", err)
	}
	hers.flags = flagPresent
	if err := confirm(hers); !errors.Is(err, ErrPasskey) {
		t.Errorf("without a PIN: %v", err)
	}
	if found, _, _ := d.Session(t.Context(), signed.Secret); !found.ConfirmedAt.Equal(signed.Session.ConfirmedAt) {
		t.Error("a refused passkey has confirmed the session")
	}
	hers.flags |= flagVerified
	if err := confirm(hers); err != nil {
		t.Error(err)
	}
	if found, _, _ := d.Session(t.Context(), signed.Secret); !found.ConfirmedAt.After(signed.Session.ConfirmedAt) {
		t.Error("the passkey has not confirmed the session")
	}
}
