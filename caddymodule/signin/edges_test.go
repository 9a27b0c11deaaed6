package signin

import (
	"errors"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/rig/wait"
	"github.com/postern-dev/postern/tests/storetest"
)

// Edges share the free failures: of three, each allows two, and then waits three times as long.
func TestFailuresAtEdges(t *testing.T) {
	t.Parallel()
	st := storetest.New(t)
	d := newDeskOn(t, st)
	d.guard = newGuard(func() int { return 3 })
	now := time.Now()
	d.now = func() time.Time { return now }
	d.addUser(t, "ann")
	for range 2 {
		if _, err := d.Password(t.Context(), attempt("ann", "wrong")); !errors.Is(err, ErrCredentials) {
			t.Fatal(err)
		}
	}
	var throttled *ThrottledError
	_, err := d.Password(t.Context(), attempt("ann", rightPassword))
	if !errors.As(err, &throttled) || throttled.RetryAfter != 3*time.Second {
		t.Errorf("after two failures: %v", err)
	}
	now = now.Add(3 * time.Second)
	d.mustSignIn(t, home, "ann")
}

// Sessions, tokens and links that were just created at another edge work. While the store does not
// answer, an unknown one may be valid, and does not count as a failed attempt.
func TestMadeAtAnotherEdge(t *testing.T) {
	t.Parallel()
	kv := storetest.OpenBolt(t, t.TempDir()+"/gateway.db")
	a, _ := storetest.OpenEdge(t, kv, store.Options{Edge: "a"})
	b, edge := storetest.OpenEdge(t, kv, store.Options{Edge: "b"})
	one, two := newDeskOn(t, a), newDeskOn(t, b)
	ann := one.addUser(t, "ann")
	for name, made := range map[string]func() (find func() error){
		"session": func() func() error {
			signed := one.mustSignIn(t, home, "ann")
			return func() error { _, _, err := two.Session(t.Context(), signed.Secret); return err }
		},
		"token": func() func() error {
			_, secret, err := a.CreateToken(t.Context(),
				store.Token{Account: store.DefaultAccount, User: ann.ID, Name: "ci", Rights: store.AllRights})
			must(t, err)
			return func() error { _, _, err := two.Token(t.Context(), secret); return err }
		},
		"link": func() func() error {
			_, secret, err := one.CreateLink(t.Context(), store.Link{Kind: store.LinkInvitation, Account: store.DefaultAccount})
			must(t, err)
			return func() error { _, err := two.Link(t.Context(), home, secret); return err }
		},
	} {
		find := made()
		edge.Cut(true)
		for range 20 {
			if err := find(); !errors.Is(err, store.ErrUnavailable) {
				t.Fatalf("%s, without the store: %v", name, err)
			}
		}
		edge.Cut(false)
		if err := answered(t, find); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	err := answered(t, func() error { _, _, err := two.Session(t.Context(), "x"); return err })
	if !errors.Is(err, ErrSession) {
		t.Errorf("no session: %v", err)
	}
}

// answered returns the result of find once that has reached the store, for which it waits at most a
// quarter of a second.
func answered(t *testing.T, find func() error) (err error) {
	t.Helper()
	wait.Until(t, "an answer of the store", func() bool {
		err = find()
		return !errors.Is(err, store.ErrUnavailable)
	})
	return err
}

// A user who sets a new password with a link is signed in even if edges have not confirmed the write.
// In the same case, a hash with an old cost is renewed.
func TestUnconfirmedPassword(t *testing.T) {
	t.Parallel()
	kv := storetest.OpenBolt(t, t.TempDir()+"/gateway.db")
	st, edge := storetest.OpenEdge(t, kv, store.Options{Edge: "a"})
	d := newDeskOn(t, st)
	ann := d.addUser(t, "ann")
	_, secret, err := d.CreateLink(t.Context(),
		store.Link{Kind: store.LinkRecovery, Account: store.DefaultAccount, User: ann.ID})
	must(t, err)
	edge.Leave(store.PendingEdge{Edge: "c"})
	signed, err := d.Redeem(t.Context(), attempt("ann", newPassword), secret)
	if !errors.Is(err, store.ErrUnconfirmed) || signed.User != ann {
		t.Fatalf("%+v, %v", signed, err)
	}
	if _, _, err := d.Session(t.Context(), signed.Secret); err != nil {
		t.Error(err)
	}
	old := passwordHash{cost: cost{memory: 4096, passes: 3, threads: 1}, salt: []byte("saltsalt")}
	old.key = d.derive([]byte(rightPassword), old.salt, old.cost, keySize)
	must(t, errOf(st.CreateUser(t.Context(), store.DefaultAccount, "bob", old.String(), store.RoleAdmin)))
	d.mustSignIn(t, home, "bob")
}
