package store_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/rig/wait"
	"github.com/postern-dev/postern/tests/storetest"
)

// clock is a time that tests set.
type clock struct{ ms atomic.Int64 }

func newClock() *clock {
	c := new(clock)
	c.ms.Store(time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC).UnixMilli())
	return c
}

func (c *clock) now() time.Time          { return time.UnixMilli(c.ms.Load()) }
func (c *clock) advance(d time.Duration) { c.ms.Add(d.Milliseconds()) }

func (c *clock) open(t testing.TB, path string) *store.Store {
	t.Helper()
	return storetest.OpenWith(t, path, store.Options{Now: c.now})
}

func tempStore(t testing.TB) string { return filepath.Join(t.TempDir(), "gateway.db") }

func mustUser(t testing.TB, s *store.Store, name string) store.User {
	t.Helper()
	u, err := s.CreateUser(t.Context(), account, name, "$argon2id$"+name, store.RoleAdmin)
	must(t, err)
	return u
}

func mustSession(t testing.TB, s *store.Store, u store.User) (store.Session, string) {
	t.Helper()
	session, secret, err := s.CreateSession(t.Context(), u.ID, "password", "192.0.2.1", "test")
	must(t, err)
	return session, secret
}

func TestUsers(t *testing.T) {
	t.Parallel()
	path := tempStore(t)
	s := storetest.Open(t, path)
	must(t, errOf(s.CreateAccount(t.Context(), "other")))
	ann := mustUser(t, s, "Ann")
	if !regexp.MustCompile(`^usr_[0-9a-v]{26}$`).MatchString(ann.ID) || ann.CreatedAt.IsZero() {
		t.Errorf("created %+v", ann)
	}
	bob, err := s.CreateUser(t.Context(), "other", "bob@example.com", "", store.RoleAdmin)
	must(t, err)
	for _, s := range []*store.Store{s, reopen(t, s, path)} {
		if got, ok := s.User(ann.ID); !ok || got != ann {
			t.Errorf("user %+v", got)
		}
		if got, ok := s.FindUser("aNN"); !ok || got != ann {
			t.Errorf("found %+v", got)
		}
		if got, ok := s.FindUser("carol"); ok {
			t.Errorf("found %+v", got)
		}
		if got := s.Users(account); !slices.Equal(got, []store.User{ann}) {
			t.Errorf("users %+v", got)
		}
		if got := s.Users("other"); !slices.Equal(got, []store.User{bob}) {
			t.Errorf("users of the other account %+v", got)
		}
		if s.UserCount() != 2 || s.Stats().Users != 2 {
			t.Errorf("%d users, %+v", s.UserCount(), s.Stats())
		}
		if a, b := s.PasswordHash(ann.ID), s.PasswordHash(bob.ID); a != "$argon2id$Ann" || b != "" {
			t.Errorf("hashes %q and %q", a, b)
		}
	}
}

func TestUserErrors(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	must(t, errOf(s.CreateAccount(t.Context(), "other")))
	ann := mustUser(t, s, "Ann")
	for _, c := range []struct {
		account, name string
		kind          error
		part          string
	}{
		{account, "", store.ErrInvalid, "empty"},
		{account, "a\tb", store.ErrInvalid, "unprintable"},
		{account, "USR_x", store.ErrInvalid, "begins like an id"},
		{account, "ANN", store.ErrExists, `user "ANN" already exists`},
		{"other", "ann", store.ErrExists, "choose another name"},
		{"nobody", "bob", store.ErrNotFound, "unknown account"},
	} {
		wantError(t, errOf(s.CreateUser(t.Context(), c.account, c.name, "", store.RoleAdmin)), c.kind, c.part)
	}
	for _, c := range [][2]string{
		{account, "bob"},
		{account, ""},
		{"other", "Ann"},
		{"other", ann.ID},
		{"a/b", "Ann"},
		{account, "usr_x"},
	} {
		wantError(t, errOf(s.RemoveUser(t.Context(), c[0], c[1])), store.ErrNotFound, "not found in the account")
	}
	wantError(t, s.SetPassword(t.Context(), "usr_x", "", "x", ""), store.ErrNotFound, "user was not found")
	wantError(t, errOf(s.CreateSession(t.Context(), "usr_x", "", "", "")), store.ErrNotFound, "user was not found")
	if s.UserCount() != 1 {
		t.Errorf("%d users", s.UserCount())
	}
}

// Of concurrent creations of users with one name, one succeeds.
func TestCreateUserConcurrent(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	var made atomic.Int32
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			_, err := s.CreateUser(t.Context(), account, []string{"Ann", "ann"}[i%2], "", store.RoleAdmin)
			if err == nil {
				made.Add(1)
			} else {
				wantError(t, err, store.ErrExists)
			}
		})
	}
	wg.Wait()
	if made.Load() != 1 || s.UserCount() != 1 {
		t.Errorf("%d calls made %d users", made.Load(), s.UserCount())
	}
}

// All sessions of a removed user end at once, even if they are too many for one transaction, and no
// record of the user remains in the file.
func TestRemoveUser(t *testing.T) {
	t.Parallel()
	path := tempStore(t)
	s := storetest.Open(t, path)
	ann, bob := mustUser(t, s, "Ann"), mustUser(t, s, "bob")
	var secrets []string
	for range store.MaxTxnOps + 10 {
		session, secret := mustSession(t, s, ann)
		s.TouchSession(session)
		secrets = append(secrets, secret)
	}
	_, token, _ := s.CreateToken(t.Context(),
		store.Token{Account: account, User: ann.ID, Name: "ci", Rights: store.AllRights})
	_, link, err := s.CreateLink(t.Context(),
		store.Link{Kind: store.LinkRecovery, Account: account, User: ann.ID}, time.Hour)
	must(t, err)
	must(t, s.AddPasskey(t.Context(), ann.ID, "c",
		store.Passkey{ID: []byte("x"), Name: "x", Credential: []byte(`{}`)}))
	_, invitation, _ := s.CreateLink(t.Context(),
		store.Link{Kind: store.LinkInvitation, Account: account, CreatedBy: "Ann"}, time.Hour)
	_, secret := mustSession(t, s, bob)
	var reported []string
	stop := s.Subscribe(func(c store.Change) {
		if c.Removed {
			reported = append(reported, c.Kind)
		}
	})
	removed, err := s.RemoveUser(t.Context(), account, "ann")
	stop()
	if err != nil || removed != ann {
		t.Fatalf("removed %+v, %v", removed, err)
	}
	count := map[string]int{}
	for _, kind := range reported {
		count[kind]++
	}
	if reported[0] != store.KindUser || count[store.KindSession] != len(secrets) || count[store.KindToken] != 1 ||
		count[store.KindLink] != 1 {
		t.Errorf("reported %v", count)
	}
	for _, s := range []*store.Store{s, reopen(t, s, path)} {
		if _, ok := s.FindSession(secrets[0]); ok || len(s.Sessions(ann.ID)) != 0 || len(s.Passkeys(ann.ID)) != 0 {
			t.Error("a session or passkey of the removed user is left")
		}
		if _, ok := s.FindToken(token); ok || len(s.Tokens(account)) != 0 {
			t.Error("a token of the removed user is left")
		}
		_, err := s.FindLink(link)
		wantError(t, err, store.ErrNotFound, "invalid link")
		if _, err := s.FindLink(invitation); err != nil {
			t.Errorf("the invitation of another user: %v", err)
		}
		if _, ok := s.FindSession(secret); !ok {
			t.Error("the session of another user has ended")
		}
	}
}

func paths(t *testing.T, kv store.KV, prefix string) []string {
	t.Helper()
	snap, err := store.Range(t.Context(), kv, store.Prefix(prefix))
	must(t, err)
	var out []string
	for _, item := range snap.Items {
		out = append(out, item.Key)
	}
	return out
}

func TestSetPassword(t *testing.T) {
	t.Parallel()
	path := tempStore(t)
	s := storetest.Open(t, path)
	ann := mustUser(t, s, "Ann")
	var sessions []store.Session
	var secrets []string
	for range store.MaxTxnOps {
		session, secret := mustSession(t, s, ann)
		sessions, secrets = append(sessions, session), append(secrets, secret)
	}
	must(t, s.SetPassword(t.Context(), ann.ID, s.PasswordHash(ann.ID), "new", sessions[7].ID))
	if got := s.Sessions(ann.ID); len(got) != 1 || got[0].ID != sessions[7].ID {
		t.Errorf("%d sessions are left", len(got))
	}
	for _, s := range []*store.Store{s, reopen(t, s, path)} {
		if s.PasswordHash(ann.ID) != "new" {
			t.Errorf("the hash is %q", s.PasswordHash(ann.ID))
		}
		for i, secret := range secrets {
			if _, ok := s.FindSession(secret); ok != (i == 7) {
				t.Fatalf("session %d is valid: %v", i, ok)
			}
		}
	}
	s = storetest.Open(t, tempStore(t))
	ann = mustUser(t, s, "Ann")
	_, secret := mustSession(t, s, ann)
	must(t, s.SetPassword(t.Context(), ann.ID, s.PasswordHash(ann.ID), "new", ""))
	if _, ok := s.FindSession(secret); ok {
		t.Error("a session outlived the password")
	}
	if _, secret = mustSession(t, s, ann); secret == "" {
		t.Error("no secret")
	} else if _, ok := s.FindSession(secret); !ok {
		t.Error("a session of the new password is not valid")
	}
}

// dyingKV fails all writes from the nth on, like a process that is killed there.
type dyingKV struct {
	store.KV
	left atomic.Int32
}

func (k *dyingKV) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	if k.left.Add(-1) < 0 {
		return store.TxnResult{}, context.Canceled
	}
	return k.KV.Txn(ctx, t)
}

// If the process dies during the removal of a user, the user has no access either, and the next process
// removes the remaining records.
func TestDyingAmidRemoval(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(*store.Store, store.User) error{
		"user": func(s *store.Store, u store.User) error {
			_, err := s.RemoveUser(t.Context(), account, u.ID)
			return err
		},
		"password": func(s *store.Store, u store.User) error {
			return s.SetPassword(t.Context(), u.ID, s.PasswordHash(u.ID), "new", "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kv := storetest.OpenBolt(t, tempStore(t))
			dying := &dyingKV{KV: share(kv)}
			dying.left.Store(1 << 20)
			s := newStore(t, dying)
			ann := mustUser(t, s, "Ann")
			_, secret := mustSession(t, s, ann)
			_, token, _ := s.CreateToken(t.Context(),
				store.Token{Account: account, User: ann.ID, Name: "ci", Rights: store.AllRights})
			dying.left.Store(1)
			must(t, remove(s, ann))
			if len(paths(t, kv, "sessions/")) != 1 {
				t.Fatal("all is removed: the test shows nothing")
			}
			next := newStore(t, share(kv))
			for _, s := range []*store.Store{s, next} {
				if _, ok := s.FindSession(secret); ok || len(s.Sessions(ann.ID)) != 0 {
					t.Error("the session is valid")
				}
				if _, ok := s.FindToken(token); ok != (name == "password") {
					t.Errorf("the token is valid: %v", ok)
				}
			}
			wait.Until(t, "the rest is swept", func() bool {
				return len(paths(t, kv, "sessions/")) == 0 && (name == "password") == (len(paths(t, kv, "tokens/")) == 1)
			})
		})
	}
}

// No secret gets into the file.
func TestFileHasNoSecrets(t *testing.T) {
	t.Parallel()
	path := tempStore(t)
	s := storetest.Open(t, path)
	ann := mustUser(t, s, "Ann")
	_, session := mustSession(t, s, ann)
	_, token, _ := s.CreateToken(t.Context(),
		store.Token{Account: account, User: ann.ID, Name: "ci", Rights: store.AllRights})
	_, link, _ := s.CreateLink(t.Context(), store.Link{Kind: store.LinkInvitation, Account: account}, time.Hour)
	_, code, _ := s.CreatePairing(t.Context(), account, "Ann")
	must(t, errOf(s.ClaimPairing(t.Context(), code, deviceSecret(1), store.Device{})))
	must(t, s.Close())
	content, err := os.ReadFile(path)
	must(t, err)
	for i, secret := range []string{
		session, strings.TrimPrefix(token, "pmt_"), link, code[5:],
		strings.ReplaceAll(code[5:], "-", ""), deviceSecret(1),
	} {
		if len(secret) < 8 || strings.Contains(string(content), secret) {
			t.Errorf("the file has secret %d, or there is none", i)
		}
	}
}

func deviceSecret(i int) string { return fmt.Sprintf("%043d", i) }
