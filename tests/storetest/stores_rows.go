package storetest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// testReadThere changes keys, users and their credentials in one store, and waits until the
// others have the changes.
func testReadThere(t *storesTest) {
	here, there := t.twoStores()
	ctx := t.Context()
	_, secret := t.key(here)
	t.everywhere("the key", func(s *store.Store) bool { _, ok := s.FindKey(secret); return ok })
	u, err := here.CreateUser(ctx, account, "Ann", "hash", store.RoleAdmin)
	t.ok(err)
	t.everywhere("the user", func(s *store.Store) bool { _, ok := s.FindUser("ann"); return ok })
	session, sessionSecret := t.session(here, u)
	_, tokenSecret, err := there.CreateToken(ctx,
		store.Token{Account: account, User: u.ID, Name: "ci", Rights: store.AllRights})
	t.ok(err)
	t.everywhere("session and token", func(s *store.Store) bool {
		_, session := s.FindSession(sessionSecret)
		_, token := s.FindToken(tokenSecret)
		return session && token
	})
	if err := there.RemoveSession(ctx, u.ID, session.ID); err != nil {
		t.Error(err)
	}
	t.everywhere("the end of the session", func(s *store.Store) bool { _, ok := s.FindSession(sessionSecret); return !ok })
	_, sessionSecret = t.session(here, u)
	if err := there.SetPassword(ctx, u.ID, there.PasswordHash(u.ID), "new", ""); err != nil {
		t.Error(err)
	}
	t.everywhere("the end by the new password",
		func(s *store.Store) bool { _, ok := s.FindSession(sessionSecret); return !ok })
	for i, s := range t.stores {
		got, err := s.Secret(ctx, "x", func() ([]byte, error) { return []byte{byte(i)}, nil })
		if err != nil || string(got) != "\x00" {
			t.Errorf("store %d has the secret %q, %v", i, got, err)
		}
	}
}

// testConflicts creates records of one name, and uses one link, in all stores concurrently.
func testConflicts(t *storesTest) {
	here, _ := t.twoStores()
	_, secret, err := here.CreateLink(t.Context(), store.Link{Kind: store.LinkInvitation, Account: account}, time.Hour)
	t.ok(err)
	t.everywhere("the link", func(s *store.Store) bool { _, err := s.FindLink(secret); return err == nil })
	for name, row := range map[string]struct {
		lost error
		f    func(i int, s *store.Store) error
	}{
		"accounts": {
			store.ErrExists,
			func(_ int, s *store.Store) error { _, err := s.CreateAccount(t.Context(), "team"); return err },
		},
		"connectors": {store.ErrExists, func(_ int, s *store.Store) error {
			_, _, err := s.CreateConnector(t.Context(), account, "gpu")
			return err
		}},
		"users": {store.ErrExists, func(_ int, s *store.Store) error {
			_, err := s.CreateUser(t.Context(), account, "Ann", "", store.RoleAdmin)
			return err
		}},
		"links": {store.ErrNotFound, func(i int, s *store.Store) error {
			_, err := s.RedeemLink(t.Context(), secret, fmt.Sprint("user", i), "hash", store.Ending{})
			return err
		}},
	} {
		var won atomic.Int32
		t.all(func(i int, s *store.Store) {
			switch err := row.f(i, s); {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, row.lost):
				t.Errorf("%s: %v", name, err)
			}
		})
		if won.Load() != 1 {
			t.Errorf("%s: %d stores succeeded, not 1", name, won.Load())
		}
	}
}

// testIdentity signs one person in for the first time, in all stores concurrently: there is one user.
func testIdentity(t *storesTest) {
	for _, s := range t.stores {
		s.SetSignInPolicy(store.SignInPolicy{Issuers: []string{"https://id.example.com"}})
	}
	for i := range 30 {
		var users sync.Map
		t.all(func(_ int, s *store.Store) {
			session, _, _, err := s.SignInByIssuer(t.Context(), store.IssuerSignIn{
				Issuer: "https://id.example.com", Subject: fmt.Sprint(i), Account: account, Name: "Ann", Role: store.RoleMember,
			})
			if err != nil {
				t.Error(err)
			}
			users.Store(session.User, true)
		})
		n := 0
		users.Range(func(any, any) bool { n++; return true })
		if n != 1 || len(t.paths("users/")) != i+1 || len(t.paths("user_names/")) != i+1 {
			t.Fatalf("person %d is %d users; all: %q", i, n, t.paths("user_names/"))
		}
	}
}

// testRemovedWhileUsed removes connectors in one store while others begin to use them.
func testRemovedWhileUsed(t *storesTest) {
	here, there := t.twoStores()
	for i := range 10 {
		c := t.connector(here, fmt.Sprint("c", i))
		t.all(func(_ int, s *store.Store) {
			if s == there {
				if _, err := s.RemoveConnector(t.Context(), account, c.ID); err != nil && !errors.Is(err, store.ErrInUse) {
					t.Error(err)
				}
				return
			}
			_, err := s.SetDeployment(t.Context(), store.Deployment{Account: account, Name: c.Name, Connectors: []string{c.ID}})
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				t.Error(err)
			}
		})
	}
	t.same()
	for _, d := range here.Deployments(account) {
		if _, ok := here.Connector(d.Connectors[0]); !ok {
			t.Errorf("the deployment %s has no connector", d.Name)
		}
	}
}

// testRevokedThere revokes a key for requests that run elsewhere.
func testRevokedThere(t *storesTest) {
	here, there := t.twoStores()
	k, secret := t.key(here)
	t.everywhere("the key", func(s *store.Store) bool { _, ok := s.FindKey(secret); return ok })
	var cut atomic.Int32
	for _, s := range t.stores {
		live, _ := s.FindKey(secret)
		live.Begin(netip.Addr{}, func(store.Refusal) { cut.Add(1) })
	}
	t.ok(second(here.RevokeKey(t.Context(), account, k.ID)))
	revoked := func(s *store.Store) bool { live, _ := s.FindKey(secret); return live.Key().RevokedAt != nil }
	if !revoked(here) || cut.Load() == 0 {
		t.Error("the key is valid where it was revoked")
	}
	// The key is already revoked. The call waits until the view of its store shows that.
	t.ok(second(there.RevokeKey(t.Context(), account, k.ID)))
	if !revoked(there) {
		t.Error("the key is valid where its revocation was confirmed")
	}
	t.eventually("all requests are cut off", func() bool { return int(cut.Load()) == len(t.stores) })
	t.everywhere("the revocation", revoked)
}

// testUnchanged checks that writes that change nothing return after any changes of the KV by
// others, of watched keys and of others.
func testUnchanged(t *storesTest) {
	here, there := t.twoStores()
	k, _ := t.key(here)
	t.ok(second(here.RevokeKey(t.Context(), account, k.ID)))
	for i := range 20 {
		for _, key := range []string{"x/other", "zzz"} {
			_, err := t.kv.Txn(t.Context(), store.Txn{Then: []store.Op{store.Put(key, nil)}})
			t.ok(err)
		}
		if i%2 == 0 {
			t.key(here)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_, err := there.RevokeKey(ctx, account, k.ID)
		if err != nil {
			t.Fatalf("revoking a revoked key: %v", err)
		}
		if err := there.SaveCalibration(ctx, store.Calibration{Account: account, Deployment: "none"}); err != nil {
			t.Fatalf("saving a calibration of no deployment: %v", err)
		}
		if len(here.Keys(account)) != len(there.Keys(account)) {
			t.Errorf("%d keys of %d", len(there.Keys(account)), len(here.Keys(account)))
		}
		cancel()
	}
}

// testLimitsOfAll checks that limits count the records that other stores have created.
func testLimitsOfAll(t *storesTest) {
	const maxKeys = 6
	here, there := t.twoStores()
	_, err := here.SetAccount(t.Context(), account, func(a *store.Account) { a.Limits.MaxKeys = maxKeys })
	t.ok(err)
	t.everywhere("the limit", func(s *store.Store) bool { a, _ := s.Account(account); return a.Limits.MaxKeys == maxKeys })
	t.all(func(_ int, s *store.Store) {
		for {
			if _, _, err := s.CreateKey(t.Context(), account, store.KeyFields{Name: rand.Text(), Scope: "*"}); err != nil {
				if !errors.Is(err, store.ErrLimit) {
					t.Error(err)
				}
				return
			}
		}
	})
	t.same()
	if n := len(here.Keys(account)); n < maxKeys || n >= maxKeys+len(t.stores) {
		t.Errorf("%d keys with a limit of %d", n, maxKeys)
	}
	for len(here.Keys(account)) >= maxKeys {
		if _, err := here.RemoveKey(t.Context(), account, here.Keys(account)[0].ID); err != nil {
			t.Fatal(err)
		}
	}
	t.same()
	t.key(there)
	if _, _, err = there.CreateKey(t.Context(),
		account, store.KeyFields{Name: rand.Text(), Scope: "*"}); !errors.Is(err, store.ErrLimit) {
		t.Errorf("a key beyond the limit: %v", err)
	}
}

// testSweeps lets all records expire, and sweeps in all stores and in new ones concurrently.
func testSweeps(t *storesTest) {
	here, there := t.twoStores()
	ctx := t.Context()
	u, err := here.CreateUser(ctx, account, "Ann", "", store.RoleAdmin)
	t.ok(err)
	valid, _ := t.key(here)
	for range 70 { // more than a transaction takes
		k, secret := t.key(here)
		live, _ := here.FindKey(secret)
		here.Touch(live.LiveKey)
		t.ok(second(here.RevokeKey(ctx, account, k.ID)))
	}
	t.session(here, u)
	_, _, err = here.CreateLink(ctx, store.Link{Kind: store.LinkInvitation, Account: account}, time.Hour)
	t.ok(err)
	_, _, err = here.CreatePairing(ctx, account, "Ann")
	t.ok(err)
	// A time of use without a record, as if another process wrote it after the removal.
	_, err = t.kv.Txn(ctx, store.Txn{Then: []store.Op{store.Put("last_used/default/x",
		[]byte(`{"v":1,"last_used_at":"2026-01-01T00:00:00Z"}`))}})
	t.ok(err)
	t.same()
	t.later.Store(int64(91 * 24 * time.Hour))
	for range t.stores {
		t.join()
	}
	for _, prefix := range []string{"sessions", "links/", "pairings/"} {
		t.eventually("nothing is left of "+prefix, func() bool { return len(t.paths(prefix)) == 0 })
	}
	t.eventually("all but one key are gone", func() bool {
		return len(t.paths("keys/")) == 1 && len(t.paths("last_used/")) == 0
	})
	t.everywhere("the valid key",
		func(s *store.Store) bool { keys := s.Keys(account); return len(keys) == 1 && keys[0].ID == valid.ID })
	if _, ok := there.User(u.ID); !ok {
		t.Error("the user is gone")
	}
}

// testAccountAgain removes an account in one store and creates it again in another. The new one
// has no records of the former one.
func testAccountAgain(t *storesTest) {
	here, there := t.twoStores()
	ctx := t.Context()
	_, err := here.CreateAccount(ctx, "team")
	t.ok(err)
	k, secret, err := here.CreateKey(ctx, "team", store.KeyFields{Name: rand.Text(), Scope: "*"})
	t.ok(err)
	t.ok(second(here.RevokeKey(ctx, "team", k.ID)))
	t.same()
	if err := here.RemoveAccount(ctx, "team"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := there.CreateKey(ctx, "team", store.KeyFields{Name: rand.Text(), Scope: "*"}); !errors.Is(err,
		store.ErrNotFound) {
		t.Errorf("a key of a removed account: %v", err)
	}
	_, err = there.CreateAccount(ctx, "team")
	t.ok(err)
	t.everywhere("only the new account", func(s *store.Store) bool {
		_, known := s.Account("team")
		_, old := s.FindKey(secret)
		return known && !old && len(s.Keys("team")) == 0
	})
}

// testWatcherFails checks that a store whose watcher fails, or has fallen behind, reads the state
// again, and treats the changes meanwhile like those from a watcher.
func testWatcherFails(t *storesTest) {
	here, there := t.twoStores()
	ctx, cut := t.Context(), t.shared[len(t.shared)-1]
	for name, cause := range map[string]error{"compacted": store.ErrCompacted, "broken": errors.New("connection lost")} {
		k, secret := t.key(there)
		live, _ := there.FindKey(secret)
		revoked := make(chan struct{})
		live.Begin(netip.Addr{}, func(store.Refusal) { close(revoked) })
		c, gone := t.connector(there, name+"c"), t.connector(there, name+"gone")
		t.ok(second(there.SetDeployment(ctx, store.Deployment{Account: account, Name: name, Connectors: []string{c.ID}})))
		ann, err := there.CreateUser(ctx, account, name+"ann", "", store.RoleAdmin)
		t.ok(err)
		bob, err := there.CreateUser(ctx, account, name+"bob", "", store.RoleAdmin)
		t.ok(err)
		_, annSecret := t.session(there, ann)
		_, bobSecret := t.session(there, bob)
		_, code, err := there.CreatePairing(ctx, account, "Ann")
		t.ok(err)
		t.same()
		cut.CutOff(cause, func() {
			_, revokeErr := here.RevokeKey(ctx, account, k.ID)
			_, deploymentErr := here.RemoveDeployment(ctx, account, name)
			_, connectorErr := here.RemoveConnector(ctx, account, gone.ID)
			_, userErr := here.RemoveUser(ctx, account, ann.ID)
			_, denyErr := here.DenyPairing(ctx, account, code, bob.ID)
			passwordErr := here.SetPassword(ctx, bob.ID, here.PasswordHash(bob.ID), "new", "")
			if err := errors.Join(revokeErr, deploymentErr, connectorErr, userErr, denyErr, passwordErr); err != nil {
				t.Error(err)
			}
			t.key(here)
			if live.Key().RevokedAt != nil || dump(here) == dump(there) {
				t.Error("the store is not cut off: the test shows nothing")
			}
		})
		<-revoked
		t.same()
		_, annOK := there.FindSession(annSecret)
		_, bobOK := there.FindSession(bobSecret)
		if annOK || bobOK {
			t.Error("a session that has ended meanwhile is valid")
		}
		if again, ok := there.FindKey(secret); !ok || again != live {
			t.Error("the key has another LiveKey")
		}
		t.key(there) // it continues to follow
	}
}

// testWriteUnconfirmed checks that writes whose watcher has failed wait until the next watcher
// delivers their changes, but not longer than their context.
func testWriteUnconfirmed(t *storesTest) {
	_, there := t.twoStores()
	k, _ := t.key(there)
	t.ok(second(there.RevokeKey(t.Context(), account, k.ID)))
	writes := map[string]func(ctx context.Context) error{
		"with a change": func(ctx context.Context) error {
			_, _, err := there.CreateKey(ctx, account, store.KeyFields{Name: rand.Text(), Scope: "*"})
			return err
		},
		"without a change": func(ctx context.Context) error { _, err := there.RevokeKey(ctx, account, k.ID); return err },
	}
	for name, write := range writes {
		done := make(chan error, 1)
		t.shared[len(t.shared)-1].CutOff(errors.New("connection lost"), func() {
			// Others change the KV, so that the view is outdated.
			_, err := t.kv.Txn(t.Context(), store.Txn{Then: []store.Op{store.Put("marks/users", []byte(name))}})
			t.ok(err)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if err := write(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a write %s that does not take effect: %v", name, err)
			}
			go func() { done <- write(t.Context()) }()
			time.Sleep(50 * time.Millisecond)
		})
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if err := write(ctx); err != nil { // the watcher has failed and is not yet replaced
			t.Errorf("a write %s after the failure: %v", name, err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("a write %s since before the failure: %v", name, err)
		}
	}
}
