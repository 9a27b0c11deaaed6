package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

// waysIn creates a passkey, a number of tokens and an invitation of a user.
func waysIn(t *testing.T, s *store.Store, u store.User, tokens int) (invitation string) {
	t.Helper()
	must(t, s.AddPasskey(t.Context(), u.ID, "c",
		store.Passkey{ID: []byte(u.ID), Name: "phone", Credential: []byte("1")}))
	must(t, errOf(s.SetAccount(t.Context(), account, func(a *store.Account) { a.Limits.MaxTokens = 1000 })))
	for i := range tokens {
		must(t, errOf(s.CreateToken(t.Context(),
			store.Token{Account: account, User: u.ID, Name: fmt.Sprint(i), Rights: store.AllRights})))
	}
	_, secret, err := s.CreateLink(t.Context(),
		store.Link{Kind: store.LinkInvitation, Account: account, CreatedBy: u.ID}, time.Hour)
	must(t, err)
	return secret
}

// A recovery revokes what Ending selects, of its user alone, even if that is too much for one
// transaction.
func TestRecoverEnds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end    store.Ending
		tokens int
	}{
		"nothing":  {store.Ending{}, 2},
		"passkeys": {store.Ending{Passkeys: true}, 2},
		"tokens":   {store.Ending{Tokens: true}, 2},
		"both":     {store.Ending{Passkeys: true, Tokens: true}, 2},
		"many":     {store.Ending{Passkeys: true, Tokens: true}, store.MaxTxnOps},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := tempStore(t)
			s := newClock().open(t, path)
			ann, bob := mustUser(t, s, "Ann"), mustUser(t, s, "bob")
			hers, his := waysIn(t, s, ann, test.tokens), waysIn(t, s, bob, 1)
			_, secret := mustLink(t, s, store.LinkRecovery, ann.ID)
			if u, err := s.RedeemLink(t.Context(), secret, "", "new", test.end); err != nil || u != ann ||
				s.PasswordHash(ann.ID) != "new" {
				t.Fatalf("recovered %+v, %v", u, err)
			}
			check := func(s *store.Store) {
				t.Helper()
				if left := len(s.Passkeys(ann.ID)) == 1; left == test.end.Passkeys {
					t.Errorf("passkeys are left: %v", left)
				}
				tokens := 0
				for _, token := range s.Tokens(account) {
					if token.User == ann.ID {
						tokens++
					}
				}
				if want := map[bool]int{false: test.tokens}[test.end.Tokens]; tokens != want {
					t.Errorf("%d tokens are left, not %d", tokens, want)
				}
				if _, err := s.FindLink(hers); (err == nil) == test.end.Tokens {
					t.Errorf("her invitation: %v", err)
				}
				_, err := s.FindLink(his)
				if err != nil || len(s.Passkeys(bob.ID)) != 1 || len(s.Tokens(account)) != tokens+1 {
					t.Errorf("of somebody else something has ended: %v", err)
				}
				wantError(t, errOf(s.FindLink(secret)), store.ErrNotFound)
			}
			check(s)
			check(newClock().open(t, closed(t, s, path)))
		})
	}
}

// lateKV runs other writes just before a transaction.
type lateKV struct {
	store.KV
	others func()
}

func (k *lateKV) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	if others := k.others; others != nil {
		k.others = nil
		others()
	}
	return k.KV.Txn(ctx, t)
}

// An old session adds a passkey after the recovery has read the credentials to revoke.
func TestRecoverEndsWhatIsAddedMeanwhile(t *testing.T) {
	t.Parallel()
	kv := storetest.OpenBolt(t, tempStore(t))
	other := newStore(t, share(kv))
	ann := mustUser(t, other, "Ann")
	_, secret := mustLink(t, other, store.LinkRecovery, ann.ID)
	late := &lateKV{KV: share(kv)}
	s := newStore(t, late)
	late.others = func() { waysIn(t, other, ann, 1) }
	must(t, errOf(s.RedeemLink(t.Context(), secret, "", "new", store.Ending{Passkeys: true, Tokens: true})))
	if p, tokens := s.Passkeys(ann.ID), s.Tokens(account); len(p)+len(tokens) != 0 {
		t.Errorf("left are %d passkeys and %d tokens", len(p), len(tokens))
	}
}

// lastKV does one more transaction, and is dead after it.
type lastKV struct {
	store.KV
	armed, dead bool
}

func (k *lastKV) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	if k.dead {
		return store.TxnResult{}, store.ErrClosed
	}
	k.dead = k.armed
	return k.KV.Txn(ctx, t)
}

// One transaction sets the new password and revokes credentials, so that a crash never leaves the old
// ones with the new password.
func TestRecoverEndsAtOnce(t *testing.T) {
	t.Parallel()
	kv := storetest.OpenBolt(t, tempStore(t))
	other := newStore(t, share(kv))
	ann := mustUser(t, other, "Ann")
	waysIn(t, other, ann, 3)
	_, secret := mustLink(t, other, store.LinkRecovery, ann.ID)
	last := &lastKV{KV: share(kv)}
	s := newStore(t, last)
	last.armed = true
	must(t, errOf(s.RedeemLink(t.Context(), secret, "", "new", store.Ending{Passkeys: true, Tokens: true})))
	if p, tokens := s.Passkeys(ann.ID), s.Tokens(account); len(p)+len(tokens) != 0 {
		t.Errorf("left are %d passkeys and %d tokens", len(p), len(tokens))
	}
}
