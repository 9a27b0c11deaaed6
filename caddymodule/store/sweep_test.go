package store_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/rig/wait"
	"github.com/postern-dev/postern/tests/storetest"
)

// beginAll creates one record of each kind that expires.
func beginAll(t *testing.T, s *store.Store, u store.User) store.Session {
	t.Helper()
	ctx := t.Context()
	session, _, err := s.CreateSession(ctx, u.ID, "", "", "")
	_, _, linkErr := s.CreateLink(ctx, store.Link{Kind: store.LinkInvitation, Account: account}, 15*time.Minute)
	_, _, unusedErr := s.CreatePairing(ctx, account, "")
	_, code, pendingErr := s.CreatePairing(ctx, account, "")
	_, claimErr := s.ClaimPairing(ctx, code, deviceSecret(1), store.Device{})
	_, denied, deniedErr := s.CreatePairing(ctx, account, "")
	_, denyErr := s.DenyPairing(ctx, account, denied, "")
	must(t, errors.Join(err, linkErr, unusedErr, pendingErr, claimErr, deniedErr, denyErr))
	return session
}

// Records that ended a day ago are removed, by a running store and by one that opens. Valid records
// and those that ended recently are kept.
func TestSweep(t *testing.T) {
	t.Parallel()
	path := tempStore(t)
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		kv, err := store.OpenBolt(path, store.BoltOptions{})
		must(t, err)
		s, err := store.New(share(kv), store.Options{})
		must(t, err)
		u, err := s.CreateUser(ctx, account, "Ann", "", store.RoleAdmin)
		must(t, err)
		check := func(when string, sessions, links, pairings int) {
			t.Helper()
			synctest.Wait()
			got := [3]int{len(paths(t, kv, "sessions/")), len(paths(t, kv, "links/")), len(paths(t, kv, "pairings/"))}
			if got != [3]int{sessions, links, pairings} {
				t.Errorf("%s there are %v sessions, links and pairings", when, got)
			}
		}
		used := beginAll(t, s, u)
		beginAll(t, s, u)
		check("at first", 2, 2, 6)
		time.Sleep(11 * time.Hour)
		s.TouchSession(used)
		time.Sleep(13 * time.Hour)
		check("after a day", 2, 2, 4) // without those that were denied at once
		time.Sleep(30 * time.Minute)
		check("a day after the end of the codes", 2, 0, 0)
		beginAll(t, s, u)
		time.Sleep(12 * time.Hour)
		check("a day after one session was idle", 2, 1, 3)
		if got := s.Stats(); got.Users != 1 || len(s.Links(account)) != 0 || len(s.Pairings(account)) != 3 {
			t.Errorf("the view has %+v, pairings %+v", got, s.Pairings(account))
		}
		must(t, s.Close())
		time.Sleep(60 * time.Hour)
		check("while no store runs", 2, 1, 3)
		if s, err = store.New(share(kv), store.Options{}); err != nil {
			t.Fatal(err)
		}
		check("after a start", 0, 0, 0)
		time.Sleep(time.Hour)
		if n := len(paths(t, kv, "sessions_seen/")); n != 0 {
			t.Errorf("%d uses of removed sessions are left", n)
		}
		must(t, errors.Join(s.Close(), kv.Close()))
	})
}

// Times of use without a record are removed. Items that this program does not know are kept.
func TestSweepLeftovers(t *testing.T) {
	t.Parallel()
	kv := storetest.OpenBolt(t, tempStore(t))
	first := newStore(t, share(kv))
	u := mustUser(t, first, "Ann")
	session, _ := mustSession(t, first, u)
	must(t, first.Close())
	const id = "00000000000000000000000000"
	stay := []string{
		"robots/removed/x", "user_names/x", "secrets/x", "sessions_seen/" + u.ID + "/" + session.ID, "marks/users2",
		"marks/accounts/default",
	}
	removed := []string{
		"last_used/removed/x", "tokens_used/default/mgt_" + id, "sessions_seen/" + u.ID + "/ses_" + id,
	}
	var ops []store.Op
	for _, path := range slices.Concat(stay, removed) {
		ops = append(ops, store.Put(path, []byte(`{"v":1,"last_used_at":"2026-01-01T00:00:00Z"}`)))
	}
	must(t, errOf(kv.Txn(t.Context(), store.Txn{Then: ops})))
	s := newStore(t, share(kv))
	wait.Until(t, "the leftovers are swept", func() bool {
		all := paths(t, kv, "")
		return !slices.ContainsFunc(removed, func(p string) bool { return slices.Contains(all, p) })
	})
	all := paths(t, kv, "")
	for _, path := range stay {
		if !slices.Contains(all, path) {
			t.Errorf("%s is removed", path)
		}
	}
	if len(s.Sessions(u.ID)) != 1 {
		t.Error("a valid session is removed")
	}
}

// Records of an account that were written after its removal, or not removed with it, are removed a
// day later, or when another account of this name is created.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	path := tempStore(t)
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		kv := storetest.OpenBolt(t, path)
		s := newStore(t, share(kv))
		_, first := s.CreateAccount(ctx, "first")
		_, second := s.CreateAccount(ctx, "second")
		must(t, errors.Join(first, second, s.RemoveAccount(ctx, "first"), s.RemoveAccount(ctx, "second")))
		late := func(id string) []string { return []string{store.DirUsage + id + "/2026-01-01"} }
		var ops []store.Op
		for _, path := range append(slices.Concat(late("first"), late("second"), late("firsts")), "last_used/second/x") {
			ops = append(ops, store.Put(path, []byte(`{"v":1,"last_used_at":"2026-01-01T00:00:00Z"}`)))
		}
		must(t, errOf(kv.Txn(ctx, store.Txn{Then: ops})))
		left := func(all ...string) []string {
			return slices.DeleteFunc(all, func(path string) bool { return !slices.Contains(paths(t, kv, path), path) })
		}
		must(t, errOf(s.CreateAccount(ctx, "first")))
		if got := left(append(late("first"), "leftovers/first")...); len(got) != 0 {
			t.Errorf("a new account has %q", got)
		}
		time.Sleep(23 * time.Hour)
		synctest.Wait()
		if got := left(append(late("second"), "leftovers/second")...); len(got) != 2 {
			t.Errorf("only %q is left before the other gateways must know of the removal", got)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if got := left(append(late("second"), "leftovers/second", "last_used/second/x")...); len(got) != 0 {
			t.Errorf("a day later there are %q", got)
		}
		if got := left(late("firsts")...); len(got) != 1 {
			t.Errorf("of another account only %q is left", got)
		}
	})
}

// While a record cannot be read, nothing is removed: the passkeys of an unreadable user would seem to
// have no user.
func TestSweepUnreadable(t *testing.T) {
	t.Parallel()
	path := tempStore(t)
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		kv := storetest.OpenBolt(t, path)
		s := newStore(t, share(kv))
		u := mustUser(t, s, "Ann")
		p := store.Passkey{ID: []byte("x"), Name: "x", Credential: []byte("1")}
		must(t, s.AddPasskey(ctx, u.ID, "c", p))
		path := "users/" + account + "/" + u.ID
		item, err := kv.Get(ctx, path)
		must(t, err)
		put := func(op store.Op) {
			t.Helper()
			must(t, errOf(kv.Txn(ctx, store.Txn{Then: []store.Op{op}})))
		}
		put(store.Put(path, bytes.Replace(item.Value, []byte(`"v":1`), []byte(`"v":2`), 1)))
		time.Sleep(25 * time.Hour)
		if _, ok := s.User(u.ID); ok || len(paths(t, kv, "passkeys/")) != 1 {
			t.Errorf("readable: %v, passkeys %q", ok, paths(t, kv, "passkeys/"))
		}
		put(store.Put(path, item.Value))
		time.Sleep(time.Hour)
		if len(s.Passkeys(u.ID)) != 1 {
			t.Error("the passkey is removed")
		}
		put(store.Delete(path)) // as after a crash
		time.Sleep(time.Hour)
		if got := paths(t, kv, "passkeys/"); len(got) != 0 {
			t.Errorf("passkeys of nobody: %q", got)
		}
	})
}

// Answers to challenges are kept until no edge accepts the challenges.
func TestSweepAnswers(t *testing.T) {
	t.Parallel()
	path := tempStore(t)
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		kv, err := store.OpenBolt(path, store.BoltOptions{})
		must(t, err)
		s, err := store.New(share(kv), store.Options{})
		must(t, err)
		u, err := s.CreateUser(ctx, account, "Ann", "", store.RoleAdmin)
		addErr := s.AddPasskey(ctx, u.ID, "c", store.Passkey{ID: []byte("x"), Name: "x", Credential: []byte("1")})
		must(t, errors.Join(err, addErr))
		for after, want := range []int{1, 1, 0} { // in steps of ten minutes, as the sweeper runs
			synctest.Wait()
			if got := len(paths(t, kv, "answers/")); got != want {
				t.Errorf("after %d minutes there are %d answers, not %d", 10*after, got, want)
			}
			time.Sleep(10 * time.Minute)
		}
		if err := errors.Join(s.Close(), kv.Close()); err != nil {
			t.Error(err)
		}
	})
}
