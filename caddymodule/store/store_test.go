package store_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

const account = store.DefaultAccount

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// errOf returns the last result of a call, its error.
func errOf(results ...any) error {
	err, _ := results[len(results)-1].(error)
	return err
}

func mustKey(t testing.TB, s *store.Store, scope string) (store.Key, string) {
	t.Helper()
	k, secret, err := s.CreateKey(t.Context(), account, store.KeyFields{Name: "test key " + rand.Text(), Scope: scope})
	must(t, err)
	return k, secret
}

func TestCreateKey(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	s := storetest.Open(t, path)
	k, secret := mustKey(t, s, " qwen*, gpt-? ")
	if !regexp.MustCompile(`^sk-svc-[0-9A-Za-z]{43}$`).MatchString(secret) {
		t.Error("the secret has not the form it should have")
	}
	if !regexp.MustCompile(`^key_[0-9a-v]{26}$`).MatchString(k.ID) {
		t.Errorf("the id is %q", k.ID)
	}
	if k.Scope != "qwen*,gpt-?" || k.Account != account || k.LastUsedAt != nil || k.RevokedAt != nil ||
		k.CreatedAt.IsZero() {
		t.Errorf("created %+v", k)
	}
	live, ok := s.FindKey(secret)
	if !ok || !reflect.DeepEqual(live.Key(), k) || k.RevokedAt != nil || live.ID() != k.ID || live.Account() != account {
		t.Fatalf("found %+v", live)
	}
	if !live.Scope().Allows("qwen3:8b") || live.Scope().Allows("llama") {
		t.Error("the scope is not that of the key")
	}
	for _, wrong := range []string{
		"", "sk-svc-", secret[:49], secret + "x", "sk-svc-" + strings.Repeat("a", 43),
		strings.ToUpper(secret), secret[7:],
	} {
		if _, ok := s.FindKey(wrong); ok {
			t.Errorf("found a key for a wrong secret of %d bytes", len(wrong))
		}
	}
	must(t, s.Close())
	content, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(content), secret[7:]) {
		t.Errorf("the file holds the secret itself, or %v", err)
	}
	again, ok := storetest.Open(t, path).FindKey(secret)
	if !ok || !reflect.DeepEqual(again.Key(), k) {
		t.Error("the key is not there after a restart")
	}
}

func TestCreateKeyErrors(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	for _, c := range []struct {
		account, name, scope string
		kind                 error
		part                 string
	}{
		{account, "", "*", store.ErrInvalid, "name of the key is empty"},
		{account, " x", "*", store.ErrInvalid, "begins or ends with a space"},
		{account, "a\nb", "*", store.ErrInvalid, "unprintable"},
		{account, "\xff", "*", store.ErrInvalid, "unprintable"},
		{account, strings.Repeat("x", 129), "*", store.ErrInvalid, "129 bytes"},
		{account, "x", "", store.ErrInvalid, `"*" allows all`},
		{account, "x", "a b", store.ErrInvalid, "contains ' '"},
		{"nobody", "x", "*", store.ErrNotFound, `unknown account "nobody"`},
		{"", "x", "*", store.ErrNotFound, "unknown account"},
		{"default/x", "x", "*", store.ErrNotFound, "unknown account"},
	} {
		_, _, err := s.CreateKey(t.Context(), c.account, store.KeyFields{Name: c.name, Scope: c.scope})
		wantError(t, err, c.kind, c.part)
	}
	if n := s.Stats().Keys; n != 0 {
		t.Errorf("there are %d keys", n)
	}
}

// Before RevokeKey returns, new lookups find the key revoked, and running requests are ended.
func TestRevokeKey(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	s := storetest.Open(t, path)
	k, secret := mustKey(t, s, "*")
	live, _ := s.FindKey(secret)
	var cut, stopped atomic.Int32
	for range 3 {
		live.Begin(netip.Addr{}, func(store.Refusal) {
			if live.Key().RevokedAt == nil {
				t.Error("cut before it was revoked")
			}
			cut.Add(1)
		})
	}
	stop := live.Begin(netip.Addr{}, func(store.Refusal) { stopped.Add(1) })
	if !stop.End() || stop.End() {
		t.Error("End does not report whether the request was running")
	}
	revoked, err := s.RevokeKey(t.Context(), account, k.ID)
	if err != nil || revoked.RevokedAt == nil {
		t.Fatalf("revoked %+v, %v", revoked, err)
	}
	if cut.Load() != 3 || stopped.Load() != 0 {
		t.Errorf("%d of 3 requests cut, %d that had ended", cut.Load(), stopped.Load())
	}
	if again, ok := s.FindKey(secret); !ok || again != live || live.Key().RevokedAt == nil {
		t.Error("a lookup does not see the revocation")
	}
	live.Begin(netip.Addr{}, func(store.Refusal) { cut.Add(1) })
	if cut.Load() != 4 {
		t.Error("a callback that comes late is not called at once")
	}
	again, err := s.RevokeKey(t.Context(), account, k.ID)
	if err != nil || !again.RevokedAt.Equal(*revoked.RevokedAt) || cut.Load() != 4 {
		t.Errorf("revoked again: %+v, %v", again, err)
	}
	for _, id := range []string{"", "key_", "key_" + strings.Repeat("0", 26), k.ID + "/", "other key"} {
		wantError(t, errOf(s.RevokeKey(t.Context(), account, id)), store.ErrNotFound, "not found in the account")
	}
	wantError(t, errOf(s.RevokeKey(t.Context(), "other", k.ID)), store.ErrNotFound, "not found in the account")
	must(t, s.Close())
	s = storetest.Open(t, path)
	if live, ok := s.FindKey(secret); !ok || live.Key().RevokedAt == nil {
		t.Error("the key is valid again after a restart")
	} else {
		live.Begin(netip.Addr{}, func(store.Refusal) { cut.Add(1) })
	}
	if cut.Load() != 5 || s.Stats().RevokedKeys != 1 {
		t.Errorf("after a restart: %d calls, %+v", cut.Load(), s.Stats())
	}
}

// Requests begin and end while their key is revoked: each is either cut or
// ended before, and each that began later finds the key revoked.
func TestRevokeKeyConcurrent(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	for range 10 {
		k, secret := mustKey(t, s, "*")
		var done atomic.Bool
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 10000 {
					returned := done.Load()
					live, ok := s.FindKey(secret)
					if !ok {
						t.Error("lost the key")
						return
					}
					if live.Key().RevokedAt != nil {
						return
					}
					if returned {
						t.Error("the key is valid after RevokeKey has returned")
						return
					}
					var cut atomic.Bool
					stop := live.Begin(netip.Addr{}, func(store.Refusal) { cut.Store(true) })
					s.Touch(live.LiveKey)
					if done.Load() && !cut.Load() {
						t.Error("a request is not cut after RevokeKey has returned")
					}
					stop.End()
				}
			})
		}
		if _, err := s.RevokeKey(t.Context(), account, k.ID); err != nil {
			t.Error(err)
		}
		done.Store(true)
		wg.Wait()
	}
}

func reopen(t *testing.T, s *store.Store, path string) *store.Store {
	t.Helper()
	must(t, s.Close())
	return storetest.Open(t, path)
}

func TestSecret(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	s := storetest.Open(t, path)
	var wg sync.WaitGroup
	got := make([]string, 8)
	for i := range got {
		wg.Go(func() {
			secret, err := s.Secret(t.Context(), "tunnel_identity",
				func() ([]byte, error) { return fmt.Append(nil, "secret ", i), nil })
			if err != nil {
				t.Error(err)
			}
			got[i] = string(secret)
		})
	}
	wg.Wait()
	never := func() ([]byte, error) { return nil, errors.New("generated twice") }
	again, err := reopen(t, s, path).Secret(t.Context(), "tunnel_identity", never)
	if err != nil || slices.ContainsFunc(got, func(s string) bool { return s != string(again) }) {
		t.Errorf("secrets %q, then %q, %v", got, again, err)
	}
	s = storetest.New(t)
	for _, name := range []string{"", "A", "a/b", "a-b", strings.Repeat("a", 65)} {
		wantError(t, errOf(s.Secret(t.Context(), name, never)), store.ErrInvalid, "a secret cannot have the name")
	}
	if _, err := s.Secret(t.Context(), "x", never); err == nil || !strings.Contains(err.Error(), "generated twice") {
		t.Errorf("a generator that fails: %v", err)
	}
	_, err = s.Secret(t.Context(), "x", func() ([]byte, error) { return nil, nil })
	wantError(t, err, store.ErrInvalid, "must not be empty")
}

func TestSubscribe(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	// No lock: each call is before the return of the write that causes it.
	var got []string
	stop := s.Subscribe(func(c store.Change) {
		got = append(got, fmt.Sprintf("%s %s %v", c.Kind, c.Name, c.Removed))
		if c.Kind == store.KindConnector {
			if _, ok := s.Connector(c.ID); ok == c.Removed {
				t.Errorf("told %+v, which the store does not show", c)
			}
		}
	})
	c, _, _ := s.CreateConnector(t.Context(), account, "one")
	k, _ := mustKey(t, s, "*")
	s.SetDeployment(t.Context(), store.Deployment{Account: account, Name: "a", Connectors: []string{c.ID}})
	s.RevokeKey(t.Context(), account, k.ID)
	s.RemoveDeployment(t.Context(), account, "a")
	s.RemoveConnector(t.Context(), account, c.ID)
	stop()
	mustKey(t, s, "*")
	want := []string{
		"connector one false", "key " + k.Name + " false", "deployment a false",
		"key " + k.Name + " true", "deployment a true", "connector one true",
	}
	if !slices.Equal(got, want) {
		t.Errorf("told\n%q, want\n%q", got, want)
	}
	if stats := s.Stats(); stats.Accounts != 1 || stats.Keys != 2 || stats.RevokedKeys != 1 || stats.Connectors != 0 ||
		stats.Deployments != 0 {
		t.Errorf("stats %+v", stats)
	}
}

func TestClosedStore(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	k, secret := mustKey(t, s, "*")
	must(t, s.Close())
	if _, ok := s.FindKey(secret); !ok {
		t.Error("requests that still run cannot read any more")
	}
	_, _, keyErr := s.CreateKey(t.Context(), account, store.KeyFields{Name: "x", Scope: "*"})
	_, revokeErr := s.RevokeKey(t.Context(), account, k.ID)
	_, secretErr := s.Secret(t.Context(), "x", nil)
	for _, err := range []error{keyErr, revokeErr, secretErr, s.Close()} {
		if !errors.Is(err, store.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}
