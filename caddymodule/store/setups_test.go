package store_test

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/rig/wait"
	"github.com/postern-dev/postern/tests/storetest"
)

const noSetup = "the code is wrong, was already used, or has expired"

// as returns the context of a user's writes.
func as(t testing.TB, u store.User, token string) context.Context {
	t.Helper()
	return store.WithActor(t.Context(), store.Actor{User: u.ID, Name: u.Name, Token: token})
}

func mustSetup(ctx context.Context, t testing.TB, s *store.Store, fields store.KeyFields) (store.Setup, string) {
	t.Helper()
	setup, code, err := s.CreateSetup(ctx, account, fields)
	must(t, err)
	return setup, code
}

func TestSetup(t *testing.T) {
	t.Parallel()
	c := newClock()
	path := tempStore(t)
	s := c.open(t, path)
	ann := mustUser(t, s, "Ann")
	fields := store.KeyFields{Name: "Ann", Scope: "qwen*", Owner: ann.ID, DefaultModel: "qwen3:8b"}
	setup, code := mustSetup(as(t, ann, ""), t, s, fields)
	if !regexp.MustCompile(`^USE-[0-9A-Z]{4}-[0-9A-Z]{4}$`).MatchString(code) ||
		!setup.ExpiresAt.Equal(c.now().Add(15*time.Minute)) {
		t.Errorf("created %+v with the code %q", setup, code)
	}
	s = c.open(t, closed(t, s, path))
	for _, wrong := range []string{"", "USE-", "PAIR" + code[3:], code + "0", strings.Repeat("0", 8)} {
		wantError(t, errOf(s.FindSetup(wrong)), store.ErrNotFound, noSetup)
	}
	found, err := s.FindSetup(" " + strings.ToLower(strings.ReplaceAll(code, "-", "")))
	if err != nil || found.ID != setup.ID || found.Key.DefaultModel != "qwen3:8b" || found.CreatedBy.User != ann.ID {
		t.Fatalf("found %+v, %v", found, err)
	}
	k, secret, err := s.UseSetup(as(t, ann, ""), found, "Ann box claude", "claude")
	if err != nil || k.Name != "Ann box claude" || k.Client != "claude" || k.Owner != ann.ID ||
		k.Scope != "qwen*" {
		t.Fatalf("got %+v, %v", k, err)
	}
	if live, ok := s.FindKey(secret); !ok || live.Key().ID != k.ID {
		t.Error("the secret is not that of the key")
	}
	wantError(t, errOf(s.UseSetup(t.Context(), found, "Ann box claude", "claude")), store.ErrNotFound, noSetup)
	wantError(t, errOf(s.FindSetup(code)), store.ErrNotFound, noSetup)

	// A code expires between its lookup and its trade.
	late, code := mustSetup(as(t, ann, ""), t, s, fields)
	c.advance(15 * time.Minute)
	wantError(t, errOf(s.UseSetup(t.Context(), late, "late", "claude")), store.ErrNotFound, noSetup)
	wantError(t, errOf(s.FindSetup(code)), store.ErrNotFound, noSetup)
}

// The next trade for the same person, machine and client replaces the secret of a valid key and nothing else, even if
// the account may have no more keys. A trade changes no other key, and then does not use up the code.
func TestSetupRenews(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := c.open(t, tempStore(t))
	ann, bob := mustUser(t, s, "Ann"), mustUser(t, s, "bob")
	trade := func(u store.User, client string) (store.Key, string, error) {
		setup, _ := mustSetup(as(t, u, ""), t, s, store.KeyFields{Name: u.Name, Scope: "*", Owner: u.ID})
		return s.UseSetup(as(t, u, ""), setup, "box", client)
	}
	first, secret, err := trade(ann, "claude")
	limited, err2 := s.EditKey(t.Context(), account, "box", func(k *store.Key) error {
		k.Limits.RequestsPerDay, k.Scope, k.Note, k.Priority = 1, "qwen*", "set by an admin", store.PriorityLow
		k.ExpiresAt, k.AllowedIPs = new(c.now().Add(48*time.Hour)), []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
		return nil
	})
	_, err3 := s.SetAccount(t.Context(), account, func(a *store.Account) { a.Limits.MaxKeys = 1 })
	second, renewed, err4 := trade(ann, "claude")
	if err := errors.Join(err, err2, err3, err4); err != nil || second.ID != first.ID ||
		!reflect.DeepEqual(second.KeyFields, limited.KeyFields) || second.CreatedBy != first.CreatedBy ||
		second.RotatedBy == nil || second.RotatedBy.User != ann.ID {
		t.Fatalf("%+v becomes %+v, %v", limited, second, err)
	}
	valid := func(secret string) bool {
		live, ok := s.FindKey(secret)
		return ok && live.Refusal(netip.MustParseAddr("192.0.2.1")) == ""
	}
	for _, disabled := range []bool{true, false} {
		if _, err = s.EnableKey(t.Context(), account, "box", !disabled); err != nil {
			t.Fatal(err)
		}
		if disabled {
			_, _, err = trade(ann, "claude")
			if k, _ := s.Key(account, first.ID); !errors.Is(err, store.ErrLimit) || k.State(c.now()) != store.KeyDisabled ||
				k.DisabledBy == nil || valid(renewed) || k.Shown != second.Shown {
				t.Errorf("a trade for the disabled key: %v, %+v", err, k)
			}
		}
	}
	if !valid(secret) || !valid(renewed) {
		t.Errorf("the former secret is valid: %v, the new one: %v", valid(secret), valid(renewed))
	}
	_, last, err := trade(ann, "claude")
	if err != nil || valid(secret) || !valid(renewed) || !valid(last) {
		t.Errorf("of the secrets, the last two are valid: %v, %v, %v; %v", valid(secret), valid(renewed), valid(last), err)
	}
	if c.advance(store.DefaultGrace); valid(renewed) || !valid(last) {
		t.Error("the former secret is valid after a day, or the new one is not")
	}
	must(t, errOf(s.SetAccount(t.Context(), account, func(a *store.Account) { a.Limits.MaxKeys = 2 })))
	for u, client := range map[store.User]string{bob: "claude", ann: "codex"} {
		wantError(t, errOf(trade(u, client)), store.ErrExists, `another key has the name "box"`)
	}
	must(t, errOf(s.RevokeKey(t.Context(), account, "box")))
	third, _, err := trade(ann, "claude")
	if err != nil || third.ID == first.ID {
		t.Errorf("the revoked key becomes %+v, %v", third, err)
	}
	wantError(t, errOf(trade(bob, "claude")), store.ErrLimit, "has 2 API keys")
}

// A trade for a key that is suspended, because its owner has left the group of the key, changes nothing.
func TestSetupOfSuspendedKey(t *testing.T) {
	t.Parallel()
	s := newClock().open(t, tempStore(t))
	ann := mustUser(t, s, "Ann")
	g := &groupTest{T: t, Store: s}
	g.group(store.GroupFields{Name: "team", Members: []string{ann.ID}})
	trade := func(group string) (store.Key, string, error) {
		setup, _ := mustSetup(as(t, ann, ""), t, s, store.KeyFields{Name: "Ann", Scope: "*", Owner: ann.ID, Group: group})
		return s.UseSetup(as(t, ann, ""), setup, "box", "claude")
	}
	first, secret, err := trade("team")
	must(t, err)
	g.edit("team", func(f *store.GroupFields) { f.Members = nil })
	wantError(t, errOf(trade("")), store.ErrConflict, `the key "box" is suspended, because its owner is not in the group`)
	live, found := s.FindKey(secret)
	if now := live.Key(); !found || now.RotatedAt != nil || now.Shown != first.Shown || now.Previous != nil {
		t.Errorf("the suspended key: %+v", now)
	}
	g.edit("team", func(f *store.GroupFields) { f.Members = []string{ann.ID} })
	second, _, err := trade("")
	if err != nil || second.ID != first.ID || second.Group != first.Group || second.LeftGroup {
		t.Errorf("back in the group: %+v, %v", second, err)
	}
	must(t, errOf(s.RemoveGroup(t.Context(), account, "team")))
	wantError(t, errOf(trade("")), store.ErrConflict, "or the group was removed: change its group")
}

// A code is invalid once its creator may no longer do what it could.
func TestSetupOfAnotherRole(t *testing.T) {
	t.Parallel()
	s := newClock().open(t, tempStore(t))
	mustUser(t, s, "root")
	for what, change := range map[string]func(u store.User, token string) error{
		"another role": func(u store.User, _ string) error {
			_, err := s.SetUserRole(t.Context(), account, u.ID, store.RoleMember)
			return err
		},
		"a removed user": func(u store.User, _ string) error {
			_, err := s.RemoveUser(t.Context(), account, u.ID)
			return err
		},
		"a revoked token": func(_ store.User, token string) error {
			return s.RemoveToken(t.Context(), account, token)
		},
	} {
		u := mustUser(t, s, strings.ReplaceAll(what, " ", "-"))
		token, _, err := s.CreateToken(t.Context(),
			store.Token{Account: account, User: u.ID, Name: "x", Rights: store.RightKeys})
		must(t, err)
		_, code := mustSetup(as(t, u, token.ID), t, s, store.KeyFields{Name: "x", Scope: "*"})
		if _, err := s.FindSetup(code); err != nil {
			t.Errorf("before %s: %v", what, err)
		}
		must(t, change(u, token.ID))
		wantError(t, errOf(s.FindSetup(code)), store.ErrNotFound, noSetup)
	}
	owner := mustUser(t, s, "owner")
	setup, _ := mustSetup(t.Context(), t, s, store.KeyFields{Name: "x", Scope: "*", Owner: owner.ID})
	must(t, errOf(s.RemoveUser(t.Context(), account, owner.ID)))
	wantError(t, errOf(s.UseSetup(t.Context(), setup, "x", "claude")), store.ErrNotFound, "user")
}

func TestSetupFaults(t *testing.T) {
	t.Parallel()
	s := newClock().open(t, tempStore(t))
	ann, bob := mustUser(t, s, "Ann"), mustUser(t, s, "bob")
	for text, fields := range map[string]store.KeyFields{
		"pattern is empty": {Name: "x", Scope: "a,,b"},
		"in the past":      {Name: "x", Scope: "*", ExpiresAt: new(time.Unix(0, 0))},
		"the name of the":  {Scope: "*"},
		"not the id of":    {Name: "x", Scope: "*", Owner: "bob"},
	} {
		if _, _, err := s.CreateSetup(t.Context(), account, fields); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%+v: %v", fields, err)
		}
	}
	for range 20 {
		mustSetup(as(t, ann, ""), t, s, store.KeyFields{Name: "x", Scope: "*"})
	}
	_, _, err := s.CreateSetup(as(t, ann, ""), account, store.KeyFields{Name: "x", Scope: "*"})
	wantError(t, err, store.ErrConflict, "20 unused codes")
	mustSetup(as(t, bob, ""), t, s, store.KeyFields{Name: "x", Scope: "*"})
}

// Of many trades of a code at two gateways, one succeeds. The other gateway knows the code at once.
func TestSetupRace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kv := storetest.OpenBolt(t, filepath.Join(t.TempDir(), "gateway.db"))
		gateways := []*store.Store{newStore(t, share(kv)), newStore(t, share(kv))}
		ann := mustUser(t, gateways[0], "Ann")
		wait.Until(t, "the other knows her", func() bool { return gateways[1].UserCount() == 1 })
		for range 10 {
			_, code := mustSetup(as(t, ann, ""), t, gateways[0], store.KeyFields{Name: "x", Scope: "*", Owner: ann.ID})
			var group sync.WaitGroup
			var mu sync.Mutex
			won := 0
			for i := range 8 {
				group.Go(func() {
					s := gateways[i%2]
					if err := s.Refresh(t.Context()); err != nil {
						t.Error(err)
					}
					setup, err := s.FindSetup(code)
					if err == nil {
						_, _, err = s.UseSetup(as(t, ann, ""), setup, "box", "claude")
					}
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						won++
					} else if !errors.Is(err, store.ErrNotFound) {
						t.Error(err)
					}
				})
			}
			if group.Wait(); won != 1 {
				t.Fatalf("%d trades of a code succeeded", won)
			}
		}
		if keys := gateways[0].Keys(account); len(keys) != 1 {
			t.Errorf("keys %+v", keys)
		}
	})
}

// Codes are removed once they have expired.
func TestSetupSweep(t *testing.T) {
	t.Parallel()
	path := tempStore(t)
	synctest.Test(t, func(t *testing.T) {
		kv, err := store.OpenBolt(path, store.BoltOptions{})
		must(t, err)
		s, err := store.New(share(kv), store.Options{})
		must(t, err)
		mustSetup(context.Background(), t, s, store.KeyFields{Name: "x", Scope: "*"})
		for _, want := range []int{1, 0} {
			time.Sleep(14 * time.Minute)
			synctest.Wait()
			if n := len(paths(t, kv, "setups/")); n != want {
				t.Errorf("%d codes, not %d", n, want)
			}
		}
		must(t, errors.Join(s.Close(), kv.Close()))
	})
}
