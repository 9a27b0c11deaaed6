package store_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

// running is a request with a key, and why it was ended.
type running struct {
	*store.Call
	mu    sync.Mutex
	ended []store.Refusal
}

func begin(t *testing.T, s *store.Store, secret, from, deployment string) *running {
	t.Helper()
	live, ok := s.FindKey(secret)
	if !ok {
		t.Fatal("the key is not found")
	}
	r := new(running)
	addr, _ := netip.ParseAddr(from)
	r.Call = live.Begin(addr, func(why store.Refusal) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.ended = append(r.ended, why)
	})
	if deployment != "" {
		r.AllowModel(deployment)
	}
	return r
}

func (r *running) want(t *testing.T, want ...store.Refusal) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.ended, want) {
		t.Errorf("the request was ended for %q, not %q", r.ended, want)
	}
}

// A change of a key ends the requests that it no longer allows before the write returns, and
// no others.
func TestChangesEndRequests(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*store.Key)
		ended  map[string]store.Refusal // by the request: address and deployment
	}{
		"a narrower scope": {
			func(k *store.Key) { k.Scope = "qwen*" },
			map[string]store.Refusal{"10.0.0.1 llama": store.RefusedScope},
		},
		"fewer addresses": {
			func(k *store.Key) { k.AllowedIPs = networks(t, "10.0.0.0/8", "2001:db8::1") },
			map[string]store.Refusal{"192.0.2.1 qwen3": store.RefusedAddress, " qwen3": store.RefusedAddress},
		},
		"a note":  {func(k *store.Key) { k.Note = "of the laptop" }, nil},
		"a name":  {func(k *store.Key) { k.Name = "other" }, nil},
		"expires": {func(k *store.Key) { k.ExpiresAt = new(time.Now().Add(time.Hour)) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := storetest.New(t)
			k, secret := mustKey(t, s, "*")
			requests := map[string]*running{}
			for _, r := range []string{
				"10.0.0.1 qwen3", "10.0.0.1 llama", "10.0.0.1 ", "192.0.2.1 qwen3", " qwen3",
				"2001:db8::1 qwen3",
			} {
				from, deployment, _ := strings.Cut(r, " ")
				requests[r] = begin(t, s, secret, from, deployment)
			}
			must(t, errOf(s.EditKey(t.Context(), account, k.ID,
				func(k *store.Key) error { c.change(k); return nil })))
			for name, r := range requests {
				if why := c.ended[name]; why != "" {
					r.want(t, why)
				} else {
					r.want(t)
				}
			}
			again := begin(t, s, secret, "192.0.2.1", "")
			if c.ended["192.0.2.1 qwen3"] != "" {
				again.want(t, store.RefusedAddress)
			} else {
				again.want(t)
			}
			if late := begin(t, s, secret, "10.0.0.1", ""); late.AllowModel("llama") != (c.ended["10.0.0.1 llama"] == "") {
				t.Error("a late request uses another scope")
			}
		})
	}
}

func networks(t *testing.T, texts ...string) []netip.Prefix {
	t.Helper()
	parsed, err := store.ParseNetworks(texts)
	must(t, err)
	return parsed
}

func TestDisableKey(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	s := storetest.Open(t, path)
	k, secret := mustKey(t, s, "*")
	request := begin(t, s, secret, "", "")
	k, err := s.EnableKey(t.Context(), account, k.Name, false)
	if err != nil || k.State(time.Now()) != store.KeyDisabled {
		t.Fatalf("%+v, %v", k, err)
	}
	request.want(t, store.RefusedDisabled)
	since := *k.DisabledAt
	if k, err = s.EnableKey(t.Context(), account, k.ID, false); err != nil || !k.DisabledAt.Equal(since) {
		t.Errorf("disabled again: %+v, %v", k, err)
	}
	s = reopen(t, s, path)
	begin(t, s, secret, "", "").want(t, store.RefusedDisabled)
	if k, err = s.EnableKey(t.Context(), account, k.ID, true); err != nil || k.State(time.Now()) != store.KeyValid {
		t.Errorf("enabled: %+v, %v", k, err)
	}
	begin(t, s, secret, "", "").want(t)
}

// Both secrets are valid for the grace period, at most two at a time. Requests end with the
// secret that they came with.
func TestRotateKey(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	synctest.Test(t, func(t *testing.T) {
		s, err := openStore(path)
		must(t, err)
		defer func() { s.Close() }()
		k, first := mustKeyIn(t, s)
		_, second := rotate(t, s, k.ID, time.Hour)
		s.Close()
		if s, err = openStore(path); err != nil { // the schedule is read again
			t.Fatal(err)
		}
		byFirst, bySecond := begin(t, s, first, "", ""), begin(t, s, second, "", "")
		time.Sleep(time.Hour - time.Millisecond)
		synctest.Wait()
		byFirst.want(t)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		byFirst.want(t, store.RefusedRotated)
		begin(t, s, first, "", "").want(t, store.RefusedRotated)
		bySecond.want(t)
		if k, _ := s.Key(account, k.ID); k.Previous != nil || k.RotatedAt == nil {
			t.Errorf("after the grace period: %+v", k)
		}
		// A second rotation ends the oldest at once, and one without grace all others.
		k, third := rotate(t, s, k.ID, time.Hour)
		byThird := begin(t, s, third, "", "")
		if k.Previous == nil || k.Previous.Shown != shown(second) || k.Shown != shown(third) {
			t.Errorf("rotated %+v", k)
		}
		_, fourth := rotate(t, s, k.ID, time.Hour)
		bySecond.want(t, store.RefusedRotated)
		byThird.want(t)
		if _, ok := s.FindKey(second); ok {
			t.Error("the oldest secret is known")
		}
		rotate(t, s, k.ID, 0)
		byThird.want(t, store.RefusedRotated)
		if _, ok := s.FindKey(fourth); ok {
			t.Error("a secret without grace is known")
		}
		for _, grace := range []time.Duration{-1, store.MaxGrace + 1} {
			_, _, err := s.RotateKey(context.Background(), account, k.ID, grace)
			wantError(t, err, store.ErrInvalid, "grace period")
		}
	})
}

func mustKeyIn(t *testing.T, s *store.Store) (store.Key, string) {
	t.Helper()
	k, secret, err := s.CreateKey(context.Background(), account, store.KeyFields{Name: "laptop", Scope: "*"})
	must(t, err)
	return k, secret
}

func shown(secret string) string { return secret[:11] + "…" + secret[46:] }

func rotate(t *testing.T, s *store.Store, id string, grace time.Duration) (store.Key, string) {
	t.Helper()
	k, secret, err := s.RotateKey(context.Background(), account, id, grace)
	must(t, err)
	return k, secret
}

// An expired key is refused at once. Its requests end, and subscribers get notices, within 30 seconds.
func TestKeysExpire(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	synctest.Test(t, func(t *testing.T) {
		s, err := openStore(path)
		must(t, err)
		defer s.Close()
		start := time.Now()
		var got []string
		s.Subscribe(func(c store.Change) {
			if c.Expiring > 0 || c.State == store.KeyExpired {
				got = append(got, fmt.Sprint(time.Since(start).Round(time.Hour), " ", c.Name, " ", c.State, " ", c.Expiring))
			}
		})
		const day = 24 * time.Hour
		requests, secrets := map[string]*running{}, map[string]string{}
		for name, life := range map[string]time.Duration{
			"hour": time.Hour, "week": 8 * day, "moved": 2 * time.Hour,
			"never": 0, "revoked": 9 * day,
		} {
			k := store.KeyFields{Name: name, Scope: "*"}
			if life > 0 {
				k.ExpiresAt = new(start.Add(life))
			}
			_, secret, err := s.CreateKey(context.Background(), account, k)
			must(t, err)
			requests[name], secrets[name] = begin(t, s, secret, "", ""), secret
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		begin(t, s, secrets["hour"], "", "").want(t, store.RefusedExpired)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		requests["hour"].want(t, store.RefusedExpired)
		_, err = s.EditKey(context.Background(), account, "moved",
			func(k *store.Key) error { k.ExpiresAt = new(start.Add(4 * day)); return nil })
		must(t, err)
		time.Sleep(2 * day)
		must(t, errOf(s.RevokeKey(context.Background(), account, "revoked")))
		time.Sleep(7 * day)
		synctest.Wait()
		requests["moved"].want(t, store.RefusedExpired)
		requests["week"].want(t, store.RefusedExpired)
		requests["revoked"].want(t, store.RefusedRevoked)
		requests["never"].want(t)
		want := []string{
			"1h0m0s hour expired 0s", "24h0m0s week valid 168h0m0s", "48h0m0s revoked valid 168h0m0s",
			"72h0m0s moved valid 24h0m0s", "96h0m0s moved expired 0s", "168h0m0s week valid 24h0m0s", "192h0m0s week expired 0s",
		}
		if !slices.Equal(got, want) {
			t.Errorf("notices\n%q, want\n%q", got, want)
		}
		if n := s.CountKeys(account); n[store.KeyExpired] != 3 || n[store.KeyValid] != 1 || n[store.KeyRevoked] != 1 {
			t.Errorf("counts %v", n)
		}
		// An expired key can be renewed, until it is removed after 90 days with its name.
		if _, err = s.EditKey(context.Background(), account, "hour",
			func(k *store.Key) error { k.ExpiresAt = nil; return nil }); err != nil {
			t.Error(err)
		}
		time.Sleep(92 * day)
		synctest.Wait()
		if n := len(s.Keys(account)); n != 2 {
			t.Errorf("%d keys are left", n)
		}
		if _, _, err := s.CreateKey(context.Background(),
			account, store.KeyFields{Name: "moved", Scope: "*"}); err != nil {
			t.Errorf("the name of a removed key: %v", err)
		}
	})
}

// Names are unique among the keys that are not revoked.
func TestKeyNames(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	ctx := t.Context()
	create := func(name string) error {
		_, _, err := s.CreateKey(ctx, account, store.KeyFields{Name: name, Scope: "*"})
		return err
	}
	rename := func(from, to string) error {
		_, err := s.EditKey(ctx, account, from, func(k *store.Key) error { k.Name = to; return nil })
		return err
	}
	must(t, errors.Join(create("a"), create("b"), rename("a", "c"), create("a"), rename("a", "a")))
	wantError(t, create("b"), store.ErrExists, `another key has the name "b"`)
	wantError(t, rename("a", "b"), store.ErrExists, `another key has the name "b"`)
	wantError(t, create("key_x"), store.ErrInvalid, "begins like an id")
	wantError(t, rename("x", "y"), store.ErrNotFound, "use a name or an id")
	must(t, errOf(s.RevokeKey(ctx, account, "b")))
	again, err := s.RevokeKey(ctx, account, "b") // by the name of a revoked key
	must(t, err)
	wantError(t, rename("b", "d"), store.ErrConflict, "is revoked, which cannot be undone")
	must(t, errors.Join(create("b"), rename("b", "e")))
	if removed, err := s.RemoveKey(ctx, account, "b"); err != nil || removed.ID != again.ID {
		t.Errorf("removed %+v, %v", removed, err)
	}
	if removed, err := s.RemoveKey(ctx, account, "e"); err != nil || removed.RevokedAt != nil {
		t.Errorf("removed %+v, %v", removed, err)
	}
	if err := create("e"); err != nil {
		t.Error(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	made := 0
	for range 8 {
		wg.Go(func() {
			if err := create("same"); err == nil {
				mu.Lock()
				defer mu.Unlock()
				made++
			}
		})
	}
	if wg.Wait(); made != 1 {
		t.Errorf("%d keys have the same name", made)
	}
}

func TestEditKeyErrors(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	k, _ := mustKey(t, s, "*")
	other, err := s.CreateAccount(t.Context(), "other")
	must(t, err)
	u, err := s.CreateUser(t.Context(), other.ID, "Eve", "", store.RoleAdmin)
	must(t, err)
	for part, c := range map[string]struct {
		change func(*store.Key)
		kind   error
	}{
		"name of the key is empty": {func(k *store.Key) { k.Name = "" }, store.ErrInvalid},
		"the scope is empty":       {func(k *store.Key) { k.Scope = "" }, store.ErrInvalid},
		"is in the past": {
			func(k *store.Key) { k.ExpiresAt = new(time.Now().Add(-time.Second)) },
			store.ErrInvalid,
		},
		"501 bytes, of at most 500": {func(k *store.Key) { k.Note = strings.Repeat("x", 501) }, store.ErrInvalid},
		"unprintable":               {func(k *store.Key) { k.Note = "a\x1b[1m" }, store.ErrInvalid},
		"101 networks, but the maximum is 100": {
			func(k *store.Key) { k.AllowedIPs = make([]netip.Prefix, 101) },
			store.ErrInvalid,
		},
		"is not the id of a user":  {func(k *store.Key) { k.Owner = "Eve" }, store.ErrInvalid},
		"not found in the account": {func(k *store.Key) { k.Owner = u.ID }, store.ErrNotFound},
	} {
		_, err := s.EditKey(t.Context(), account, k.ID, func(k *store.Key) error { c.change(k); return nil })
		wantError(t, err, c.kind, part)
	}
	if now, _ := s.Key(account, k.ID); now.ChangedBy != nil || now.Scope != "*" || now.Name != k.Name {
		t.Errorf("a refused change was made: %+v", now)
	}
	if _, ok := s.Key(other.ID, k.ID); ok {
		t.Error("another account has the key")
	}
	_, err = s.EditKey(t.Context(), other.ID, k.ID, func(*store.Key) error { return nil })
	wantError(t, err, store.ErrNotFound, "not found in the account")
}
