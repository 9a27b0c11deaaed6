package store_test

import (
	"context"
	"crypto/sha256"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// Sessions of an issuer end with its configuration, those of passwords with LocalOff, and none comes back.
func TestSessionsFollowThePolicy(t *testing.T) {
	t.Parallel()
	path := tempStore(t)
	synctest.Test(t, func(t *testing.T) {
		s, err := openStore(path)
		must(t, err)
		defer func() { must(t, s.Close()) }()
		both := store.SignInPolicy{Issuers: []string{issuer, otherIssuer}, Lifetime: time.Hour}
		s.SetSignInPolicy(both)
		ann := mustUser(t, s, "Ann")
		must(t, errOf(s.LinkIdentity(t.Context(), account, "ann", issuer, "ann")))
		must(t, errOf(s.LinkIdentity(t.Context(), account, "ann", otherIssuer, "ann")))
		mustSession(t, s, ann)
		byIssuer(t, s, issuer, "ann", store.RoleAdmin)
		_, other := byIssuer(t, s, otherIssuer, "ann", store.RoleAdmin)
		valid := func(want int, when string) {
			t.Helper()
			if got := s.Sessions(ann.ID); len(got) != want {
				t.Errorf("%s: %d sessions, not %d", when, len(got), want)
			}
		}
		valid(3, "at first")
		s.SetSignInPolicy(store.SignInPolicy{NoConsole: true}) // of an edge without the console
		time.Sleep(time.Minute)
		s.SetSignInPolicy(both)
		valid(3, "another configuration without a console")
		one := store.SignInPolicy{Issuers: []string{issuer}, Lifetime: 30 * 24 * time.Hour}
		s.SetSignInPolicy(one)
		valid(2, "one issuer less")
		time.Sleep(time.Minute)
		s.SetSignInPolicy(both)
		valid(2, "the issuer is back")
		one.LocalOff = true
		s.SetSignInPolicy(one)
		valid(1, "local off")
		time.Sleep(time.Minute)
		s.SetSignInPolicy(both)
		valid(1, "local on")
		if left := s.Sessions(ann.ID)[0]; left.Issuer != issuer || left.ExpiresAt.Sub(left.CreatedAt) != time.Hour {
			t.Errorf("left %+v, not that of %v", left, other)
		}
		short := both
		short.Lifetime = time.Minute
		s.SetSignInPolicy(short)
		valid(0, "a shorter lifetime")
		s.SetSignInPolicy(both)
		must(t, s.Close())
		s, err = openStore(path)
		must(t, err)
		time.Sleep(time.Minute) // the configuration may be loaded later
		s.SetSignInPolicy(both)
		valid(1, "after a restart")
		time.Sleep(time.Hour)
		valid(0, "an hour later")
		s.SetSignInPolicy(one)
		if _, session := byIssuer(t, s, issuer, "ann", store.RoleAdmin); session.ExpiresAt.Sub(session.CreatedAt) !=
			store.SessionLife {
			t.Errorf("lasts until %v", session.ExpiresAt)
		}
	})
}

// While signing in by password is off, a link of the operator signs in once, for an hour, and changes no password.
func TestSignInByLink(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := c.open(t, tempStore(t))
	ann := mustUser(t, s, "Ann")
	s.SetSignInPolicy(store.SignInPolicy{Issuers: []string{issuer}, LocalOff: true})
	hash := s.PasswordHash(ann.ID)
	_, secret := mustLink(t, s, store.LinkRecovery, "ann")
	session, cookie, err := s.SignInByLink(t.Context(), secret, "192.0.2.1", "test")
	must(t, err)
	if _, ok := s.FindSession(cookie); !ok || session.User != ann.ID || s.PasswordHash(ann.ID) != hash {
		t.Errorf("%+v", session)
	}
	_, _, err = s.SignInByLink(t.Context(), secret, "192.0.2.1", "test")
	wantError(t, err, store.ErrNotFound, "already used")
	c.advance(time.Hour)
	if _, ok := s.FindSession(cookie); ok {
		t.Error("the session lasts for more than an hour")
	}
	_, secret, err = s.CreateLink(t.Context(),
		store.Link{Kind: store.LinkRecovery, Account: account, User: "ann", CreatedBy: ann.ID}, time.Hour)
	must(t, err)
	_, _, err = s.SignInByLink(t.Context(), secret, "", "")
	wantError(t, err, store.ErrConflict, "the operator")
	_, secret = mustLink(t, s, store.LinkRecovery, "ann")
	c.advance(time.Hour)
	_, _, err = s.SignInByLink(t.Context(), secret, "", "")
	wantError(t, err, store.ErrExpired)
}

// The state of a sign-in by an issuer is used once, and forgotten some time after its end.
func TestUseOnce(t *testing.T) {
	t.Parallel()
	path := tempStore(t)
	synctest.Test(t, func(t *testing.T) {
		s, err := openStore(path)
		must(t, err)
		defer s.Close()
		state, until := sha256.Sum256([]byte("x")), time.Now().Add(15*time.Minute)
		must(t, s.UseOnce(t.Context(), state, until))
		time.Sleep(29 * time.Minute)
		wantError(t, s.UseOnce(t.Context(), state, until), store.ErrUsed)
		time.Sleep(12 * time.Minute)
		must(t, s.UseOnce(t.Context(), state, until))
	})
}

// failing is a KV that can fail each transaction.
type failing struct {
	store.KV
	down atomic.Bool
}

func (k *failing) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	if k.down.Load() {
		return store.TxnResult{}, store.ErrUnavailable
	}
	return k.KV.Txn(ctx, t)
}

// If the option is switched on without the KV, it counts from when the KV is back.
func TestKeysNeedSignInWithoutStore(t *testing.T) {
	t.Parallel()
	path := tempStore(t)
	synctest.Test(t, func(t *testing.T) {
		kv, err := store.OpenBolt(path, store.BoltOptions{})
		must(t, err)
		shared := &failing{KV: kv}
		s, err := store.New(shared, store.Options{})
		must(t, err)
		defer func() { must(t, s.Close()) }()
		test := newSuspensionTest(t, s)
		shared.down.Store(true)
		s.SetSignInPolicy(test.policy)
		time.Sleep(24 * time.Hour)
		test.suspended("without the store")
		shared.down.Store(false)
		time.Sleep(59 * time.Minute)
		test.suspended("an hour is not over")
		time.Sleep(2 * time.Minute)
		test.suspended("an hour after it is back", "ann", "cid")
	})
}

// suspensionTest is a store in which Ann and Cid sign in by an issuer, Bob by password. Each has a key.
type suspensionTest struct {
	*testing.T
	s       *store.Store
	policy  store.SignInPolicy
	keys    map[string]store.Key
	secrets map[string]string
}

func newSuspensionTest(t *testing.T, s *store.Store) *suspensionTest {
	test := &suspensionTest{
		T: t, s: s, policy: store.SignInPolicy{Issuers: []string{issuer}, KeysNeed: time.Hour},
		keys: map[string]store.Key{}, secrets: map[string]string{},
	}
	s.SetSignInPolicy(store.SignInPolicy{Issuers: test.policy.Issuers})
	owners := map[string]string{"bob": mustUser(t, s, "bob").ID, "none": ""}
	for _, name := range []string{"ann", "cid"} {
		u, _ := byIssuer(t, s, issuer, name, store.RoleMember)
		owners[name] = u.ID
	}
	for name, owner := range owners {
		k, secret, err := s.CreateKey(t.Context(), account, store.KeyFields{Name: name, Scope: "*", Owner: owner})
		must(t, err)
		test.keys[name], test.secrets[name] = k, secret
	}
	return test
}

// suspended checks which keys are suspended, in all views.
func (t *suspensionTest) suspended(when string, names ...string) {
	t.Helper()
	count := 0
	for name, k := range t.keys {
		want := false
		for _, n := range names {
			want = want || n == name
		}
		found, _ := t.s.FindKey(t.secrets[name])
		k, _ = t.s.Key(account, k.ID)
		if (found.Refusal(netip.Addr{}) == store.RefusedSuspended) != want ||
			(k.State(time.Now()) == store.KeySuspended) != want || t.s.Suspended(k.Owner, time.Now()) != want {
			t.Errorf("%s: the key of %s is %s, suspended from %v", when, name, k.State(time.Now()), k.SuspendedFrom)
		}
		if want {
			count++
		}
	}
	if n := t.s.CountKeys(account)[store.KeySuspended]; n != count {
		t.Errorf("%s: %d are counted as suspended", when, n)
	}
}

// Keys of users who have not signed in by an issuer for too long are suspended, and their requests end, until the
// users sign in again.
func TestKeysNeedSignIn(t *testing.T) {
	t.Parallel()
	path := tempStore(t)
	synctest.Test(t, func(t *testing.T) {
		s, err := openStore(path)
		must(t, err)
		defer func() { must(t, s.Close()) }()
		test := newSuspensionTest(t, s)
		time.Sleep(24 * time.Hour)
		s.SetSignInPolicy(test.policy) // it counts from now
		test.suspended("just switched on")
		time.Sleep(59 * time.Minute)
		test.suspended("before its end")
		byIssuer(t, s, issuer, "ann", store.RoleMember)
		requests := map[string]*running{}
		for name, secret := range test.secrets {
			requests[name] = begin(t, s, secret, "", "")
		}
		time.Sleep(2 * time.Minute)
		test.suspended("an hour after it was switched on", "cid")
		for name, r := range requests {
			if name == "cid" {
				r.want(t, store.RefusedSuspended)
			} else {
				r.want(t)
			}
		}
		s.SetSignInPolicy(store.SignInPolicy{Issuers: test.policy.Issuers})
		test.suspended("switched off")
		s.SetSignInPolicy(test.policy)
		test.suspended("switched on again", "cid")

		must(t, s.Close())
		s, err = openStore(path)
		must(t, err)
		test.s = s
		s.SetSignInPolicy(test.policy)
		test.suspended("after a restart", "cid")
		byIssuer(t, s, issuer, "cid", store.RoleMember)
		test.suspended("signed in again")
		time.Sleep(time.Hour)
		test.suspended("an hour later", "ann", "cid")

		// A change that gives a key to a suspended user ends its requests before it returns.
		free := begin(t, s, test.secrets["none"], "", "")
		must(t, errOf(s.EditKey(t.Context(), account, "none", func(k *store.Key) error {
			k.Owner = test.keys["cid"].Owner
			return nil
		})))
		free.want(t, store.RefusedSuspended)
		must(t, errOf(s.RemoveUser(t.Context(), account, "cid")))
		test.suspended("a user was removed", "ann", "cid", "none")
		test.policy.LocalOff = true
		s.SetSignInPolicy(test.policy)
		test.suspended("local off", "ann", "bob", "cid", "none")
	})
}
