package signin

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

func attempt(name, password string) Attempt {
	return Attempt{Address: home, UserAgent: "Firefox", Name: name, Password: password}
}

func TestSetupLink(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	if d.HasUsers() {
		t.Error("there are users before the first one")
	}
	_, older, err := d.CreateLink(t.Context(), store.Link{Kind: store.LinkSetup, Account: store.DefaultAccount})
	must(t, err)
	link, secret, err := d.CreateLink(t.Context(), store.Link{Kind: store.LinkSetup, Account: store.DefaultAccount})
	if err != nil || link.Kind != store.LinkSetup || link.ExpiresAt.Sub(link.CreatedAt) != 15*time.Minute {
		t.Fatalf("%+v, %v", link, err)
	}
	if _, err := d.Link(t.Context(), home, older); !errors.Is(err, ErrLink) {
		t.Errorf("a link that was replaced: %v", err)
	}
	if found, err := d.Link(t.Context(), home, secret); err != nil || found.ID != link.ID {
		t.Errorf("%+v, %v", found, err)
	}
	// An invalid name or password does not use up the link.
	if _, err := d.Redeem(t.Context(), attempt("ann", "short"), secret); !errors.Is(err, ErrPassword) {
		t.Errorf("a short password: %v", err)
	}
	if _, err := d.Redeem(t.Context(), attempt("", rightPassword), secret); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("no name: %v", err)
	}
	signed, err := d.Redeem(t.Context(), attempt("ann", rightPassword), secret)
	must(t, err)
	if signed.User.Account != store.DefaultAccount || signed.User.Name != "ann" || signed.Session.Method != MethodLink {
		t.Errorf("%+v", signed)
	}
	if _, user, err := d.Session(t.Context(), signed.Secret); err != nil || user != signed.User {
		t.Error("the first user is not signed in")
	}
	if !d.HasUsers() {
		t.Error("there are no users after the first one")
	}
	if _, err := d.Redeem(t.Context(), attempt("bob", rightPassword), secret); !errors.Is(err, ErrLink) {
		t.Errorf("a used link: %v", err)
	}
	if _, _, err := d.CreateLink(t.Context(),
		store.Link{Kind: store.LinkSetup, Account: store.DefaultAccount}); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a setup link where there are users: %v", err)
	}
	d.mustSignIn(t, home, "ann")
}

func TestInvite(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	must(t, errOf(d.store.CreateAccount(t.Context(), "other")))
	ann := d.addUser(t, "ann")
	link, secret, err := d.CreateLink(t.Context(),
		store.Link{Kind: store.LinkInvitation, Account: "other", CreatedBy: ann.ID})
	if err != nil || link.Kind != store.LinkInvitation || link.CreatedBy != "ann" ||
		link.ExpiresAt.Sub(link.CreatedAt) != 72*time.Hour {
		t.Fatalf("%+v, %v", link, err)
	}
	if _, err := d.Redeem(t.Context(), attempt("Ann", rightPassword), secret); !errors.Is(err, store.ErrExists) {
		t.Errorf("a name that is taken: %v", err)
	}
	signed, err := d.Redeem(t.Context(), attempt("bob", rightPassword), secret)
	if err != nil || signed.User.Account != "other" || signed.Session.Account != "other" {
		t.Fatalf("%+v, %v", signed, err)
	}
}

func TestRecovery(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	ann, bob := d.addUser(t, "ann"), d.addUser(t, "bob")
	before := d.mustSignIn(t, home, "ann")
	for _, wrong := range []struct{ account, user string }{
		{"other", "ann"},
		{"other", ann.ID},
		{store.DefaultAccount, "carl"},
		{store.DefaultAccount, ""},
	} {
		if _, _, err := d.CreateLink(t.Context(),
			store.Link{Kind: store.LinkRecovery, Account: wrong.account, User: wrong.user, CreatedBy: bob.ID}); !errors.Is(err,
			store.ErrNotFound) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
	recovery := store.Link{Kind: store.LinkRecovery, Account: store.DefaultAccount, User: "ANN", CreatedBy: bob.ID}
	_, older, err := d.CreateLink(t.Context(), recovery)
	must(t, err)
	link, secret, err := d.CreateLink(t.Context(), recovery)
	if err != nil || link.Kind != store.LinkRecovery || link.User != ann.ID {
		t.Fatalf("%+v, %v", link, err)
	}
	// The name entered does not matter, but the password must follow the rules for the user's name.
	signed, err := d.Redeem(t.Context(), attempt("bob", newPassword), secret)
	if err != nil || signed.User != ann {
		t.Fatalf("%+v, %v", signed, err)
	}
	if _, err := d.Link(t.Context(), home, older); !errors.Is(err, ErrLink) {
		t.Errorf("a link that was not used: %v", err)
	}
	if _, _, err := d.Session(t.Context(), before.Secret); !errors.Is(err, ErrSession) {
		t.Error("a session from before the recovery works")
	}
	if _, _, err := d.Session(t.Context(), signed.Secret); err != nil {
		t.Error("the session from the recovery does not work")
	}
	if _, err := d.signIn(t, home, "ann", newPassword); err != nil {
		t.Errorf("the new password: %v", err)
	}
	if _, err := d.signIn(t, home, "ann", rightPassword); !errors.Is(err, ErrCredentials) {
		t.Errorf("the old password: %v", err)
	}
	d.mustSignIn(t, home, "bob")
	_, secret, err = d.CreateLink(t.Context(),
		store.Link{Kind: store.LinkRecovery, Account: store.DefaultAccount, User: ann.ID, CreatedBy: "the command line"})
	must(t, err)
	must(t, errOf(d.store.RemoveUser(t.Context(), store.DefaultAccount, ann.ID)))
	if _, err := d.Redeem(t.Context(), attempt("", newPassword), secret); !errors.Is(err, ErrLink) {
		t.Errorf("the link of a removed user: %v", err)
	}
}

func TestLinksEndAndGuessingIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		_, secret, err := d.CreateLink(t.Context(), store.Link{Kind: store.LinkSetup, Account: store.DefaultAccount})
		must(t, err)
		derived := d.derived.Load()
		for range freeFailures + 1 {
			if _, err := d.Redeem(t.Context(), attempt("ann", rightPassword), "guess"); !errors.Is(err, ErrLink) {
				t.Errorf("a guess: %v", err)
			}
		}
		var throttled *ThrottledError
		if _, err := d.Link(t.Context(), home, secret); !errors.As(err, &throttled) {
			t.Errorf("after six guesses: %v", err)
		}
		if _, err := d.Link(t.Context(), elsewhere, secret); err != nil {
			t.Errorf("from another address: %v", err)
		}
		if d.derived.Load() != derived {
			t.Error("guesses at links cost as much as passwords")
		}
		time.Sleep(linkLife[store.LinkSetup])
		_, err = d.Link(t.Context(), elsewhere, secret)
		if !errors.Is(err, ErrLink) || err.Error() != "this link has expired: ask for a new one" {
			t.Errorf("after its end: %v", err)
		}
	})
}
