package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/rig/wait"
	"github.com/postern-dev/postern/tests/storetest"
)

// Of two gateways that decide on the same record at the same time, one fails: each write
// compares the record that its decision was based on.
func TestDecisionsOfTwoGateways(t *testing.T) {
	t.Parallel()
	kv := storetest.OpenBolt(t, filepath.Join(t.TempDir(), "gateway.db"))
	a, b := newStore(t, share(kv)), newStore(t, share(kv))
	race := func(what string, first, second func() error) {
		t.Helper()
		other := make(chan error)
		go func() { other <- second() }()
		errs := []error{first(), <-other}
		for i, err := range errs {
			if won := errs[1-i] == nil; won == (err == nil) || !won && !errors.Is(errs[1-i], store.ErrConflict) {
				t.Errorf("%s: %v and %v", what, errs[0], errs[1])
				return
			}
		}
	}
	as := func(u store.User) context.Context {
		return store.WithActor(t.Context(), store.Actor{User: u.ID, Name: u.Name})
	}
	for range 20 {
		ann, bob := mustUser(t, a, "Ann"), mustUser(t, a, "bob")
		key := store.Passkey{ID: []byte("phone"), Name: "phone", Credential: json.RawMessage(`{"sign_count":1}`)}
		must(t, a.AddPasskey(t.Context(), ann.ID, "1", key))
		wait.Until(t, "b knows all", func() bool { return b.UserCount() == 2 && len(b.Passkeys(ann.ID)) == 1 })

		hash := a.PasswordHash(ann.ID)
		race("a new password",
			func() error { return a.SetPassword(t.Context(), ann.ID, hash, "new of a", "") },
			func() error { return b.SetPassword(t.Context(), ann.ID, hash, "new of b", "") })
		used := key
		used.Credential = json.RawMessage(`{"sign_count":2}`)
		race("a counter of a passkey",
			func() error { return a.UpdatePasskey(t.Context(), ann.ID, "2", key.Credential, used) },
			func() error { return b.UpdatePasskey(t.Context(), ann.ID, "3", key.Credential, used) })
		race("users who remove each other",
			func() error { _, err := a.RemoveUser(as(ann), account, bob.ID); return err },
			func() error { _, err := b.RemoveUser(as(bob), account, ann.ID); return err })

		wait.Until(t, "a knows the removal, which may be that of b", func() bool { return a.UserCount() == 1 })
		must(t, errOf(a.RemoveUser(t.Context(), account, a.Users(account)[0].ID)))
		wait.Until(t, "b knows it", func() bool { return b.UserCount() == 0 && len(b.Passkeys(ann.ID)) == 0 })
	}
}

// A beforeTxn calls a function once before it passes on a transaction, as if another client were faster.
type beforeTxn struct {
	*storetest.Shared
	first atomic.Pointer[func()]
}

func (k *beforeTxn) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	if first := k.first.Swap(nil); first != nil {
		(*first)()
	}
	return k.Shared.Txn(ctx, t)
}

// Of two concurrent changes, at one gateway or at two, each of which leaves what the other one removes as the last way
// in, one fails.
func TestLastWayInAtOnce(t *testing.T) {
	t.Parallel()
	kv := &beforeTxn{Shared: share(storetest.OpenBolt(t, filepath.Join(t.TempDir(), "gateway.db")))}
	a, b := newStore(t, kv), newStore(t, share(kv.KV))
	type change func(s *store.Store, user string) error
	unlink := func(s *store.Store, user string) error {
		return errOf(s.UnlinkIdentity(t.Context(), account, user, issuer, user))
	}
	remove := func(id byte) change {
		return func(s *store.Store, user string) error {
			u, _ := s.FindUser(user)
			return s.RemovePasskey(t.Context(), u.ID, []byte{id, user[0]})
		}
	}
	for _, s := range []*store.Store{a, b} {
		s.SetSignInPolicy(store.SignInPolicy{Issuers: []string{issuer}})
	}
	for n, c := range []struct {
		passkeys     int
		late, faster change
	}{
		{1, unlink, remove(0)}, {1, remove(0), unlink}, {2, remove(0), remove(1)},
	} {
		for m, at := range []*store.Store{a, b} {
			name := string(rune('a'+2*n+m)) + "nn"
			u, _ := byIssuer(t, a, issuer, name, store.RoleMember)
			for id := range c.passkeys {
				must(t, a.AddPasskey(t.Context(), u.ID, fmt.Sprint(id),
					store.Passkey{ID: []byte{byte(id), name[0]}, Name: "phone", Credential: json.RawMessage("{}")}))
			}
			if c.passkeys > 1 {
				must(t, unlink(a, name))
			}
			wait.Until(t, "b knows all", func() bool { return len(b.Passkeys(u.ID)) == c.passkeys })
			faster := func() { must(t, c.faster(at, name)) }
			kv.first.Store(&faster)
			wantError(t, c.late(a, name), store.ErrConflict, "no longer sign in")
			wait.Until(t, "a knows the faster change", func() bool {
				return kv.first.Load() == nil && len(a.Passkeys(u.ID))+len(a.Identities(u.ID)) == 1
			})
		}
	}
}
