package signin

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

const origin = "https://gw.example.com"

// addPasskey adds the passkey of a.
func (d *desk) addPasskey(t testing.TB, user store.User, a *authenticator, name string) store.Passkey {
	t.Helper()
	options, ceremony, err := d.BeginPasskey(t.Context(), user, origin)
	must(t, err)
	p, err := d.FinishPasskey(t.Context(), user, origin, ceremony, name, a.create(t, options))
	must(t, err)
	return p
}

// passkey signs in with the passkey of a.
func (d *desk) passkey(t testing.TB, address string, a *authenticator) (Signed, error) {
	t.Helper()
	options, ceremony, err := d.BeginPasskeySignIn(t.Context(), address, origin)
	if err != nil {
		return Signed{}, err
	}
	return d.FinishPasskeySignIn(t.Context(), Attempt{Address: address, UserAgent: "Firefox"}, origin, ceremony,
		a.get(t, options))
}

func TestPasskey(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	ann := d.addUser(t, "ann")
	a := newAuthenticator(t, origin)
	p := d.addPasskey(t, ann, a, "  Ann's phone ")
	all := d.store.Passkeys(ann.ID)
	if len(all) != 1 || !bytes.Equal(all[0].ID, a.id) || all[0].Name != "Ann's phone" || all[0].LastUsedAt != nil ||
		p.Name != all[0].Name {
		t.Fatalf("passkeys: %+v", all)
	}
	derived := d.derived.Load()
	for range 3 {
		signed, err := d.passkey(t, home, a)
		must(t, err)
		if signed.User != ann || signed.Session.Method != MethodPasskey || signed.Session.Address != home {
			t.Errorf("signed in as %+v", signed)
		}
		if _, user, err := d.Session(t.Context(), signed.Secret); err != nil || user != ann {
			t.Error("the session does not work")
		}
	}
	if d.derived.Load() != derived {
		t.Error("passkeys cost as much as passwords")
	}
	if all := d.store.Passkeys(ann.ID); all[0].LastUsedAt == nil || all[0].Name != "Ann's phone" {
		t.Errorf("the use is not noted: %+v", all)
	}
	must(t, d.RemovePasskey(t.Context(), ann, a.id))
	if _, err := d.passkey(t, home, a); !errors.Is(err, ErrPasskey) || len(d.Passkeys(ann.ID)) != 0 {
		t.Errorf("after its removal: %v", err)
	}
}

// A passkey that is removed during a sign-in with it leaves no session.
func TestPasskeyRemovedMeanwhile(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	ann := d.addUser(t, "ann")
	a := newAuthenticator(t, origin)
	d.addPasskey(t, ann, a, "phone")
	d.log.line = func(line string) {
		if strings.Contains(line, `"signed in"`) {
			if err := d.store.RemovePasskey(t.Context(), ann.ID, a.id); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := d.passkey(t, home, a); !errors.Is(err, ErrPasskey) || len(d.store.Sessions(ann.ID)) != 0 {
		t.Errorf("%v; sessions %+v", err, d.store.Sessions(ann.ID))
	}
}

// An unreadable passkey does not disable the others.
func TestDamagedPasskey(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	ann := d.addUser(t, "ann")
	must(t, d.store.AddPasskey(t.Context(), ann.ID, "c",
		store.Passkey{ID: []byte("damaged"), Name: "old", Credential: []byte("[]")}))
	a := newAuthenticator(t, origin)
	d.addPasskey(t, ann, a, "phone")
	if _, err := d.passkey(t, home, a); err != nil {
		t.Error(err)
	}
	if !strings.Contains(d.log.String(), "failed to read a stored passkey") {
		t.Error("the damaged one is not logged")
	}
}

func TestPasskeyOptions(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	ann := d.addUser(t, "ann")
	a := newAuthenticator(t, origin)
	d.addPasskey(t, ann, a, "phone")
	options, _, err := d.BeginPasskey(t.Context(), ann, "https://gw.example.com:8443")
	must(t, err)
	o := read[createOptions](t, options).PublicKey
	if o.RP.ID != "gw.example.com" || o.RP.Name != "Postern" || o.User.Name != "ann" || o.Timeout != 300_000 ||
		o.Attestation != "none" {
		t.Errorf("options: %s", options)
	}
	if s := o.Selection; s.ResidentKey != "required" || !s.RequireResidentKey || s.UserVerification != "required" {
		t.Errorf("options: %s", options)
	}
	if len(o.Exclude) != 1 || o.Exclude[0].ID != b64.EncodeToString(a.id) || len(o.Params) == 0 {
		t.Errorf("an existing passkey can be created again: %s", options)
	}
	if handle, err := b64.DecodeString(o.User.ID); err != nil || string(handle) != ann.ID {
		t.Errorf("the handle %q is not the user's id: %v", handle, err)
	}
	options, _, err = d.BeginPasskeySignIn(t.Context(), home, "http://localhost:2015")
	must(t, err)
	if g := read[getOptions](t, options).PublicKey; g.RPID != "localhost" || g.UserVerification != "required" ||
		g.Timeout != 300_000 || len(g.AllowCredentials) != 0 {
		t.Errorf("options: %s", options)
	}
	for _, bad := range []string{"https://192.0.2.1", "http://gw.example.com", ""} {
		if _, _, err := d.BeginPasskey(t.Context(), ann, bad); !errors.Is(err, ErrPasskey) {
			t.Errorf("at %q: %v", bad, err)
		}
		if _, _, err := d.BeginPasskeySignIn(t.Context(), home, bad); !errors.Is(err, ErrPasskey) {
			t.Errorf("at %q: %v", bad, err)
		}
	}
}

func TestPasskeyRegistrationRefused(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		spoil func(a *authenticator)
	}{
		{"another origin", func(a *authenticator) { a.origin = "https://evil.example.com" }},
		{"another port", func(a *authenticator) { a.origin = origin + ":8443" }},
		{"without https", func(a *authenticator) { a.origin = "http://gw.example.com" }},
		{"another party", func(a *authenticator) { a.party = "example.com" }},
		{"nobody there", func(a *authenticator) { a.flags = 0 }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			ann := d.addUser(t, "ann")
			options, ceremony, err := d.BeginPasskey(t.Context(), ann, origin)
			must(t, err)
			a := newAuthenticator(t, origin)
			test.spoil(a)
			_, err = d.FinishPasskey(t.Context(), ann, origin, ceremony, "phone", a.create(t, options))
			if !errors.Is(err, ErrPasskey) || len(d.store.Passkeys(ann.ID)) != 0 {
				t.Fatalf("error %v, passkeys %+v", err, d.store.Passkeys(ann.ID))
			}
		})
	}
}

func TestPasskeyRegistrationIsBound(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	ann, bob := d.addUser(t, "ann"), d.addUser(t, "bob")
	a := newAuthenticator(t, origin)
	finish := func(user store.User, origin, name string, response func([]byte) []byte) error {
		t.Helper()
		options, ceremony, err := d.BeginPasskey(t.Context(), ann, "https://gw.example.com")
		must(t, err)
		_, err = d.FinishPasskey(t.Context(), user, origin, ceremony, name, response(a.create(t, options)))
		return err
	}
	as := func(b []byte) []byte { return b }
	for name, err := range map[string]error{
		"another user":       finish(bob, origin, "phone", as),
		"another page":       finish(ann, "https://other.example.com", "phone", as),
		"a long name":        finish(ann, origin, strings.Repeat("x", maxName+1), as),
		"an unprintable one": finish(ann, origin, "pho\x00ne", as),
		"nothing":            finish(ann, origin, "phone", func([]byte) []byte { return nil }),
		"no JSON":            finish(ann, origin, "phone", func([]byte) []byte { return []byte("{") }),
		"a flood": finish(ann, origin, "phone",
			func([]byte) []byte { return bytes.Repeat([]byte(" "), maxResponse+1) }),
	} {
		if !errors.Is(err, ErrPasskey) {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, finish(ann, origin, "", as))
	if all := d.store.Passkeys(ann.ID); len(all) != 1 || all[0].Name != "Passkey" {
		t.Errorf("passkeys: %+v", all)
	}
	if err := finish(ann, origin, "again", as); !errors.Is(err, ErrPasskey) {
		t.Errorf("the same passkey again: %v", err)
	}
	for i := range maxPasskeys - 1 {
		d.addPasskey(t, ann, newAuthenticator(t, origin), fmt.Sprint("key ", i))
	}
	if _, _, err := d.BeginPasskey(t.Context(), ann, origin); !errors.Is(err, ErrPasskey) {
		t.Errorf("one more than there may be: %v", err)
	}
}

func TestPasskeySignInRefused(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		spoil func(t *testing.T, a *authenticator, bob store.User)
	}{
		{"another origin", func(_ *testing.T, a *authenticator, _ store.User) { a.origin = "https://evil.example.com" }},
		{"another party", func(_ *testing.T, a *authenticator, _ store.User) { a.party = "evil.example.com" }},
		{"nobody there", func(_ *testing.T, a *authenticator, _ store.User) { a.flags = 0 }},
		{"another key", func(t *testing.T, a *authenticator, _ store.User) { a.key = newAuthenticator(t, origin).key }},
		{"another credential", func(_ *testing.T, a *authenticator, _ store.User) { a.id = []byte("unknown") }},
		{"another user", func(_ *testing.T, a *authenticator, bob store.User) { a.handle = []byte(bob.ID) }},
		{"nobody", func(_ *testing.T, a *authenticator, _ store.User) { a.handle = []byte("usr_x") }},
		{"no handle", func(_ *testing.T, a *authenticator, _ store.User) { a.handle = nil }},
		{"long", func(_ *testing.T, a *authenticator, _ store.User) { a.handle = make([]byte, maxResponse) }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			ann, bob := d.addUser(t, "ann"), d.addUser(t, "bob")
			a := newAuthenticator(t, origin)
			d.addPasskey(t, ann, a, "phone")
			d.addPasskey(t, bob, newAuthenticator(t, origin), "phone")
			spoiled := *a
			test.spoil(t, &spoiled, bob)
			signed, err := d.passkey(t, home, &spoiled)
			if !errors.Is(err, ErrPasskey) || signed.Secret != "" ||
				len(d.store.Sessions(ann.ID))+len(d.store.Sessions(bob.ID)) != 0 {
				t.Errorf("%+v, %v", signed, err)
			}
			if got := strings.Count(d.log.String(), "sign-in failed"); got != 1 {
				t.Errorf("the failure is logged %d times:\n%s", got, d.log.String())
			}
			if _, err := d.passkey(t, home, a); err != nil {
				t.Errorf("the right passkey after it: %v", err)
			}
		})
	}
}

// An answer works once, on the page of its challenge, within five minutes.
func TestPasskeyCeremonyIsBound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		ann := d.addUser(t, "ann")
		a := newAuthenticator(t, origin)
		d.addPasskey(t, ann, a, "phone")
		begin := func() (string, []byte) {
			options, ceremony, err := d.BeginPasskeySignIn(t.Context(), home, origin)
			must(t, err)
			return ceremony, a.get(t, options)
		}
		finish := func(origin, ceremony string, response []byte) error {
			_, err := d.FinishPasskeySignIn(t.Context(), attempt("", ""), origin, ceremony, response)
			return err
		}
		ceremony, response := begin()
		must(t, finish(origin, ceremony, response))
		if err := finish(origin, ceremony, response); !errors.Is(err, ErrPasskey) {
			t.Errorf("replayed: %v", err)
		}
		other, _ := begin()
		if err := finish(origin, other, response); !errors.Is(err, ErrPasskey) {
			t.Errorf("replayed in another ceremony: %v", err)
		}
		ceremony, response = begin()
		if err := finish("https://other.example.com", ceremony, response); !errors.Is(err, ErrPasskey) {
			t.Errorf("at another page: %v", err)
		}
		_, adding, err := d.BeginPasskey(t.Context(), ann, origin)
		must(t, err)
		if err := finish(origin, adding, response); !errors.Is(err, ErrPasskey) {
			t.Errorf("in a ceremony of another kind: %v", err)
		}
		ceremony, response = begin()
		time.Sleep(ceremonyLife)
		if err := finish(origin, ceremony, response); !errors.Is(err, ErrPasskey) ||
			!strings.Contains(err.Error(), "five minutes") {
			t.Errorf("late: %v", err)
		}
		// These were five failures. After another one, the address must wait.
		var throttled *ThrottledError
		if err := finish(origin, "x", nil); !errors.Is(err, ErrPasskey) {
			t.Error(err)
		}
		if _, err := d.passkey(t, home, a); !errors.As(err, &throttled) {
			t.Errorf("after six failures: %v", err)
		}
		if _, err := d.passkey(t, elsewhere, a); err != nil {
			t.Errorf("from another address: %v", err)
		}
	})
}

// A security key that asks for no PIN is not accepted, and cannot be added.
func TestPasskeyNeedsVerification(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	ann := d.addUser(t, "ann")
	a := newAuthenticator(t, origin)
	d.addPasskey(t, ann, a, "key")
	a.flags = flagPresent
	if _, err := d.passkey(t, home, a); !errors.Is(err, ErrPasskey) || !strings.Contains(err.Error(), "PIN") ||
		len(d.store.Sessions(ann.ID)) != 0 {
		t.Errorf("signing in: %v", err)
	}
	other := newAuthenticator(t, origin)
	other.flags = flagPresent
	options, ceremony, err := d.BeginPasskey(t.Context(), ann, origin)
	must(t, err)
	if _, err := d.FinishPasskey(t.Context(), ann, origin, ceremony, "key", other.create(t, options)); !errors.Is(err,
		ErrPasskey) || !strings.Contains(err.Error(), "PIN") {
		t.Errorf("adding: %v", err)
	}
}

// While local sign-ins are off, a passkey only confirms.
func TestLocalOff(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	ann, a := d.addUser(t, "ann"), newAuthenticator(t, origin)
	d.addPasskey(t, ann, a, "phone")
	d.store.SetSignInPolicy(store.SignInPolicy{LocalOff: true, Issuers: []string{"https://id.example.com"}})
	if _, err := d.passkey(t, home, a); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a passkey: %v", err)
	}
	if _, err := d.signIn(t, home, "ann", rightPassword); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a password: %v", err)
	}
	if _, err := d.AddUser(t.Context(), store.DefaultAccount, "bob", rightPassword, store.RoleAdmin); err == nil {
		t.Error("a user with a password is added")
	}
	session, _, _, err := d.store.SignInByIssuer(t.Context(), store.IssuerSignIn{
		Issuer: "https://id.example.com", Subject: "7", Account: store.DefaultAccount, Name: "eve", Role: store.RoleAdmin,
	})
	must(t, err)
	if _, err := d.Confirm(t.Context(), session, rightPassword); !errors.Is(err, store.ErrConflict) {
		t.Errorf("confirming by password: %v", err)
	}
	eve, _ := d.store.User(session.User)
	own := newAuthenticator(t, origin)
	d.addPasskey(t, eve, own, "laptop")
	options, ceremony, err := d.BeginPasskeySignIn(t.Context(), home, origin)
	must(t, err)
	confirmed, err := d.ConfirmByPasskey(t.Context(), session, home, origin, ceremony, own.get(t, options))
	if err != nil || confirmed.ConfirmedAt.IsZero() {
		t.Errorf("%v, %v", confirmed.ConfirmedAt, err)
	}
}
