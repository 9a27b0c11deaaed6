package store_test

import (
	"crypto/rand"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

// An account can have as many records as its limits allow, and more when they are raised. Other
// accounts have their own limits.
func TestLimits(t *testing.T) {
	t.Parallel()
	path := tempStore(t)
	s := storetest.Open(t, path)
	ctx := t.Context()
	must(t, errOf(s.CreateAccount(ctx, "other")))
	ann := mustUser(t, s, "Ann")
	connector, _, err := s.CreateConnector(ctx, account, "c")
	must(t, err)
	n := 0
	kinds := map[string]struct {
		limit string
		make  func(account string) error
		all   func() int
	}{
		"API keys": {"max_keys", func(account string) error {
			_, _, err := s.CreateKey(ctx, account, store.KeyFields{Name: rand.Text(), Scope: "*"})
			return err
		}, func() int { return len(s.Keys(account)) }},
		"connectors": {"max_connectors", func(account string) error {
			_, _, err := s.CreateConnector(ctx, account, fmt.Sprint("c", n))
			return err
		}, func() int { return len(s.Connectors(account)) }},
		"deployments": {"max_deployments", func(account string) error {
			_, err := s.SetDeployment(ctx,
				store.Deployment{Account: account, Name: fmt.Sprint("d", n), Connectors: []string{connector.ID}})
			return err
		}, func() int { return len(s.Deployments(account)) }},
		"users": {"max_users", func(account string) error {
			_, err := s.CreateUser(ctx, account, fmt.Sprint("u", n), "", store.RoleAdmin)
			return err
		}, func() int { return len(s.Users(account)) }},
		"management tokens": {"max_tokens", func(account string) error {
			_, _, err := s.CreateToken(ctx, store.Token{Account: account, User: ann.ID, Name: "t", Rights: store.RightRead})
			return err
		}, func() int { return len(s.Tokens(account)) }},
	}
	must(t, errOf(s.SetAccount(ctx, account, func(a *store.Account) {
		a.Limits = store.Limits{MaxKeys: 3, MaxConnectors: 3, MaxDeployments: 3, MaxUsers: 3, MaxTokens: 3}
	})))
	for what, kind := range kinds {
		for kind.all() < 3 {
			if n++; kind.make(account) != nil {
				t.Fatalf("%s: %v", what, kind.make(account))
			}
		}
		n++
		err := kind.make(account)
		wantError(t, err, store.ErrLimit, fmt.Sprintf("has 3 %s, and can have at most 3", what))
		wantError(t, err, store.ErrLimit, "caddy gateway account set default --max-")
		if what == "API keys" {
			if err := kind.make("other"); err != nil {
				t.Errorf("another account: %v", err)
			}
		}
		must(t, errOf(s.SetAccount(ctx, account, func(a *store.Account) { *a.Limits.Field(kind.limit) = 4 })))
		if err := kind.make(account); err != nil {
			t.Errorf("%s, with a higher limit: %v", what, err)
		}
	}
	// What is there can still be changed, and a place that is made can be used.
	if _, err := s.SetDeployment(ctx,
		store.Deployment{Account: account, Name: s.Deployments(account)[0].Name, Connectors: []string{"c"}}); err != nil {
		t.Errorf("setting a deployment again: %v", err)
	}
	must(t, errOf(s.RemoveKey(ctx, account, s.Keys(account)[0].ID)))
	if err := kinds["API keys"].make(account); err != nil {
		t.Errorf("in the place of a removed key: %v", err)
	}
	// A store that opens counts the same.
	must(t, s.Close())
	s = storetest.Open(t, path)
	for what, kind := range kinds {
		n++
		wantError(t, kind.make(account), store.ErrLimit, fmt.Sprintf("has 4 %s, and can have at most 4", what))
	}
}

func TestLimitsDefault(t *testing.T) {
	t.Parallel()
	want := store.Limits{MaxKeys: 1000, MaxConnectors: 200, MaxDeployments: 7, MaxUsers: 100, MaxTokens: 100}
	if got := (store.Limits{MaxDeployments: 7}).Effective(); got != want {
		t.Errorf("%+v", got)
	}
	s := storetest.New(t)
	for _, wrong := range []int{-1, 1_000_001} {
		_, err := s.SetAccount(t.Context(), account, func(a *store.Account) { a.Limits.MaxUsers = wrong })
		wantError(t, err, store.ErrInvalid, "max_users")
	}
	for range 100 {
		must(t, errOf(s.CreateLink(t.Context(), store.Link{Kind: store.LinkInvitation, Account: account},
			time.Hour)))
	}
	_, _, err := s.CreateLink(t.Context(), store.Link{Kind: store.LinkInvitation, Account: account}, time.Hour)
	wantError(t, err, store.ErrLimit, "100 open invitations")
}

// Revoked keys and expired management tokens are removed after 90 days, valid ones are not.
func TestSweepKeysAndTokens(t *testing.T) {
	t.Parallel()
	path := tempStore(t)
	synctest.Test(t, func(t *testing.T) {
		kv, err := store.OpenBolt(path, store.BoltOptions{})
		must(t, err)
		s, err := store.New(share(kv), store.Options{})
		must(t, err)
		ann := mustUser(t, s, "Ann")
		valid, _ := mustKey(t, s, "*")
		revoked, _ := mustKey(t, s, "*")
		live, _ := s.FindKey(mustSecret(t, s))
		s.Touch(live.LiveKey)
		end := time.Now().Add(time.Hour)
		for _, at := range []*time.Time{nil, &end} {
			must(t, errOf(s.CreateToken(t.Context(),
				store.Token{Account: account, User: ann.ID, Name: "t", Rights: store.RightRead, ExpiresAt: at})))
		}
		for _, id := range []string{revoked.ID, live.ID()} {
			must(t, errOf(s.RevokeKey(t.Context(), account, id)))
		}
		if err := s.Close(); err != nil { // so that it does not save each minute of 89 days
			t.Fatal(err)
		}
		time.Sleep(89 * 24 * time.Hour)
		if s, err = store.New(kv, store.Options{}); err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		synctest.Wait()
		if len(s.Keys(account)) != 3 || len(s.Tokens(account)) != 2 {
			t.Errorf("after 89 days: %d keys, %d tokens", len(s.Keys(account)), len(s.Tokens(account)))
		}
		time.Sleep(2 * 24 * time.Hour)
		synctest.Wait()
		if left := s.Keys(account); len(left) != 1 || left[0].ID != valid.ID || len(s.Tokens(account)) != 1 {
			t.Errorf("after 91 days: keys %+v, %d tokens", left, len(s.Tokens(account)))
		}
		if n := len(paths(t, kv, "last_used/")); n != 0 {
			t.Errorf("%d uses of removed keys are left", n)
		}
	})
}

func mustSecret(t *testing.T, s *store.Store) string {
	t.Helper()
	_, secret := mustKey(t, s, "*")
	return secret
}
