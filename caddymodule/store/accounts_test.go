package store_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

func TestAccounts(t *testing.T) {
	t.Parallel()
	path := tempStore(t)
	s := storetest.Open(t, path)
	first, ok := s.Account(account)
	if !ok || first.ID != account || first.CreatedAt.IsZero() || len(s.Accounts()) != 1 {
		t.Errorf("a new store has the accounts %+v", s.Accounts())
	}
	a, err := s.CreateAccount(t.Context(), "team-1")
	if err != nil || a.ID != "team-1" || a.Name != "team-1" || a.CreatedAt.IsZero() {
		t.Fatalf("created %+v, %v", a, err)
	}
	for _, wrong := range []string{"", "Team", "a/b", "a b", "ä", strings.Repeat("a", 64)} {
		wantError(t, errOf(s.CreateAccount(t.Context(), wrong)), store.ErrInvalid, "invalid account id")
		wantError(t, s.RemoveAccount(t.Context(), wrong), store.ErrNotFound, "unknown account")
	}
	wantError(t, errOf(s.CreateAccount(t.Context(), "team-1")), store.ErrExists, "choose another id")
	if _, err := s.CreateAccount(t.Context(), strings.Repeat("a", 63)); err != nil {
		t.Error(err)
	}
	s = reopen(t, s, path)
	for _, want := range []store.Account{first, a} {
		if got, ok := s.Account(want.ID); !ok || !reflect.DeepEqual(got, want) || len(s.Accounts()) != 3 {
			t.Errorf("accounts %+v", s.Accounts())
		}
	}
	wantError(t, s.RemoveAccount(t.Context(), account), store.ErrInvalid, "every gateway has it")
}

func TestRemoveAccount(t *testing.T) {
	t.Parallel()
	kv := storetest.OpenBolt(t, tempStore(t))
	s := newStore(t, share(kv))
	const id = "team"
	must(t, errOf(s.CreateAccount(t.Context(), id)))
	u, err := s.CreateUser(t.Context(), id, "Ann", "", store.RoleAdmin)
	must(t, err)
	k, _, _ := s.CreateKey(t.Context(), id, store.KeyFields{Name: "k", Scope: "*"})
	c, _, _ := s.CreateConnector(t.Context(), id, "c")
	must(t, errOf(s.SetDeployment(t.Context(),
		store.Deployment{Account: id, Name: "d", Connectors: []string{c.ID}})))
	_, _, err = s.CreateLink(t.Context(), store.Link{Kind: store.LinkInvitation, Account: id}, time.Hour)
	_, _, pairErr := s.CreatePairing(t.Context(), id, "Ann")
	err = errors.Join(err, pairErr, s.SaveUsage(t.Context(), []store.UsageRow{{
		Account: id, Day: "2026-11-21", Key: "k",
		Usage: store.Usage{Requests: 1},
	}}))
	must(t, err)
	wantError(t, s.RemoveAccount(t.Context(), id), store.ErrInUse, "users (1), connectors (1), deployments (1), keys (1)")
	for _, remove := range []func() error{
		func() error { _, err := s.RemoveUser(t.Context(), id, u.ID); return err },
		func() error { _, err := s.RemoveDeployment(t.Context(), id, "d"); return err },
		func() error { _, err := s.RemoveConnector(t.Context(), id, c.ID); return err },
		func() error { _, err := s.RevokeKey(t.Context(), id, k.ID); return err },
	} {
		wantError(t, s.RemoveAccount(t.Context(), id), store.ErrInUse, "still has")
		must(t, remove())
	}
	must(t, s.RemoveAccount(t.Context(), id))
	left := slices.DeleteFunc(paths(t, kv, ""), func(p string) bool { return !strings.Contains(p, id) })
	if _, ok := s.Account(id); ok || !slices.Equal(left, []string{"leftovers/" + id}) {
		t.Errorf("left %v", left)
	}
	_, _, err = s.CreateKey(t.Context(), id, store.KeyFields{Name: "k", Scope: "*"})
	wantError(t, err, store.ErrNotFound, "unknown account")
	if err := s.SaveUsage(t.Context(),
		[]store.UsageRow{{Account: id, Day: "2026-11-21", Key: "k", Usage: store.Usage{Requests: 1}}}); err != nil ||
		len(paths(t, kv, store.DirUsage)) != 0 {
		t.Errorf("usage of a removed account: %v", err)
	}
}

// A concurrent creation of a record either keeps the account from being removed, or fails.
func TestRemoveAccountConcurrent(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	for i := range 20 {
		must(t, errOf(s.CreateAccount(t.Context(), "team")))
		var createErr, removeErr error
		var id string
		var wg sync.WaitGroup
		wg.Go(func() {
			switch i % 3 {
			case 0:
				var k store.Key
				k, _, createErr = s.CreateKey(t.Context(), "team", store.KeyFields{Name: "k", Scope: "*"})
				id = k.ID
			case 1:
				var c store.Connector
				c, _, createErr = s.CreateConnector(t.Context(), "team", "c")
				id = c.ID
			case 2:
				var u store.User
				u, createErr = s.CreateUser(t.Context(), "team", "Ann", "", store.RoleAdmin)
				id = u.ID
			}
		})
		wg.Go(func() { removeErr = s.RemoveAccount(t.Context(), "team") })
		wg.Wait()
		if (createErr == nil) == (removeErr == nil) {
			t.Fatalf("creating: %v; removing: %v", createErr, removeErr)
		}
		if removeErr == nil {
			continue
		}
		_, keyErr := s.RevokeKey(t.Context(), "team", id)
		_, connectorErr := s.RemoveConnector(t.Context(), "team", id)
		_, userErr := s.RemoveUser(t.Context(), "team", id)
		if keyErr != nil && connectorErr != nil && userErr != nil {
			t.Fatal(keyErr, connectorErr, userErr)
		}
		must(t, s.RemoveAccount(t.Context(), "team"))
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	path := tempStore(t)
	s := storetest.Open(t, path)
	ann := mustUser(t, s, "Ann")
	token, secret, err := s.CreateToken(t.Context(),
		store.Token{Account: account, User: ann.ID, Name: "ci", Rights: store.AllRights})
	if err != nil || !strings.HasPrefix(token.ID, "mgt_") || !strings.HasPrefix(secret, "pmt_") || len(secret) != 47 ||
		token.LastUsedAt != nil {
		t.Fatalf("created %+v, %v", token, err)
	}
	for _, s := range []*store.Store{s, reopen(t, s, path)} {
		if got, ok := s.FindToken(secret); !ok || got != token {
			t.Errorf("found %+v", got)
		}
		if got := s.Tokens(account); !slices.Equal(got, []store.Token{token}) || s.Tokens("other") != nil {
			t.Errorf("tokens %+v", got)
		}
		for _, wrong := range []string{
			"", secret[4:], "sk-svc-" + secret[4:], secret + "0",
			"pmt_" + strings.Repeat("0", 43),
		} {
			if _, ok := s.FindToken(wrong); ok {
				t.Error("a wrong secret is a token's")
			}
		}
	}
	s = storetest.Open(t, tempStore(t))
	ann = mustUser(t, s, "Ann")
	token, secret, _ = s.CreateToken(t.Context(),
		store.Token{Account: account, User: ann.ID, Name: "ci", Rights: store.AllRights})
	for _, c := range []struct {
		account, user, name string
		kind                error
	}{
		{account, ann.ID, "", store.ErrInvalid},
		{account, "Ann", "x", store.ErrNotFound},
		{"other", ann.ID, "x", store.ErrNotFound},
	} {
		_, _, err := s.CreateToken(t.Context(),
			store.Token{Account: c.account, User: c.user, Name: c.name, Rights: store.AllRights})
		wantError(t, err, c.kind)
	}
	for _, c := range [][2]string{{"other", token.ID}, {account, ""}, {account, "ci"}} {
		wantError(t, s.RemoveToken(t.Context(), c[0], c[1]), store.ErrNotFound, "not found in the account")
	}
	must(t, s.RemoveToken(t.Context(), account, token.ID))
	if _, ok := s.FindToken(secret); ok {
		t.Error("a removed token is valid")
	}
}

func TestPasskeys(t *testing.T) {
	t.Parallel()
	c := newClock()
	path := tempStore(t)
	s := c.open(t, path)
	ann, bob := mustUser(t, s, "Ann"), mustUser(t, s, "bob")
	one := store.Passkey{ID: []byte{0, 1, 2}, Name: "phone", Credential: []byte(`{"sign_count":1}`)}
	must(t, s.AddPasskey(t.Context(), ann.ID, "1", one))
	c.advance(time.Minute)
	two := store.Passkey{ID: slices.Repeat([]byte{0xff}, 1023), Name: "key", Credential: []byte(`{}`)}
	must(t, s.AddPasskey(t.Context(), ann.ID, "2", two))
	wantError(t, s.AddPasskey(t.Context(), ann.ID, "3", one), store.ErrExists)
	wantError(t, s.AddPasskey(t.Context(), bob.ID, "3", one), store.ErrExists, "already in use")
	wantError(t, s.AddPasskey(t.Context(), "usr_x", "3", one), store.ErrNotFound)
	for _, wrong := range []store.Passkey{
		{Name: "x", Credential: []byte(`{}`)},
		{ID: make([]byte, 1024), Name: "x", Credential: []byte(`{}`)},
		{ID: []byte("x"), Credential: []byte(`{}`)},
		{ID: []byte("x"), Name: "x", Credential: []byte(`{`)},
		{ID: []byte("x"), Name: "x", Credential: []byte(`"` + strings.Repeat("x", 1<<17) + `"`)},
	} {
		wantError(t, s.AddPasskey(t.Context(), ann.ID, "3", wrong), store.ErrInvalid)
	}
	used := c.now().UTC()
	had := one.Credential
	one.Credential, one.LastUsedAt = []byte(`{"sign_count":2}`), &used
	must(t, s.UpdatePasskey(t.Context(), ann.ID, "3", had, one))
	wantError(t, s.UpdatePasskey(t.Context(), bob.ID, "4", had, one), store.ErrNotFound, "passkey was not found")
	wantError(t, s.UpdatePasskey(t.Context(), ann.ID, "4", had, one), store.ErrConflict, "used meanwhile")
	three := store.Passkey{ID: []byte{3}, Name: "other", Credential: []byte(`{}`)}
	for _, answered := range []string{"1", "3"} {
		wantError(t, s.AddPasskey(t.Context(), ann.ID, answered, three), store.ErrUsed)
		wantError(t, s.UpdatePasskey(t.Context(), ann.ID, answered, one.Credential, one), store.ErrUsed)
	}
	s = c.open(t, closed(t, s, path))
	got := s.Passkeys(ann.ID)
	if len(got) != 2 || got[0].Name != "phone" || string(got[0].Credential) != `{"sign_count":2}` ||
		!got[0].LastUsedAt.Equal(used) ||
		!got[0].CreatedAt.Equal(used.Add(-time.Minute)) || !slices.Equal(got[1].ID, two.ID) || got[1].LastUsedAt != nil {
		t.Errorf("passkeys %+v", got)
	}
	if got := s.Passkeys(bob.ID); got != nil {
		t.Errorf("passkeys of another user %+v", got)
	}
	wantError(t, s.RemovePasskey(t.Context(), bob.ID, one.ID), store.ErrNotFound)
	reported := 0
	s.Subscribe(func(c store.Change) {
		if c.Kind == store.KindUser && c.ID == ann.ID && !c.Removed {
			reported++
		}
	})
	if err := s.RemovePasskey(t.Context(), ann.ID, one.ID); err != nil || len(s.Passkeys(ann.ID)) != 1 || reported != 1 {
		t.Errorf("left %+v, reported %d times, %v", s.Passkeys(ann.ID), reported, err)
	}
}
