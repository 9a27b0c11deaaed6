package store_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

// openEdges returns the stores of two edges.
func openEdges(t *testing.T) (a, b *store.Store, edge *storetest.Edge) {
	kv := storetest.OpenBolt(t, t.TempDir()+"/gateway.db")
	a, _ = storetest.OpenEdge(t, kv, store.Options{Edge: "a"})
	b, edge = storetest.OpenEdge(t, kv, store.Options{Edge: "b"})
	return a, b, edge
}

// A change that edges have not confirmed is committed, and returns its result.
func TestUnconfirmed(t *testing.T) {
	t.Parallel()
	_, s, edge := openEdges(t)
	ctx, until := t.Context(), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	k, secret, err := s.CreateKey(ctx, account, store.KeyFields{Name: "key", Scope: "*"})
	must(t, err)
	u, err := s.CreateUser(ctx, account, "ann", "hash", store.RoleAdmin)
	must(t, err)
	for range store.MaxTxnOps { // more sessions than one write ends
		must(t, errOf(s.CreateSession(ctx, u.ID, "password", "", "")))
	}
	link, linkSecret, err := s.CreateLink(ctx,
		store.Link{Kind: store.LinkRecovery, Account: account, User: u.ID}, time.Hour)
	must(t, err)
	g, err := s.CreateGroup(ctx, account, store.GroupFields{Name: "group", Scope: "*", Claim: "x"})
	must(t, err)
	must(t, s.SetClaimGroups(ctx, u.ID, []string{"x"}))
	edge.Leave(store.PendingEdge{Edge: "c", Until: until})
	check := func(what string, err error, ok bool) {
		t.Helper()
		var un *store.Unconfirmed
		if !errors.As(err, &un) || !store.Committed(err) || un.Pending[0].Edge != "c" ||
			!strings.Contains(err.Error(), "2026-01-02T03:04:05Z") || !ok {
			t.Errorf("%s: %v, %v", what, err, ok)
		}
	}
	narrow := func(k *store.Key) error { k.Scope = "one"; return nil }
	_, err = s.EditKey(ctx, account, k.ID, narrow)
	check("narrowing", err, true)
	narrowed, err := s.EditKey(ctx, account, k.ID, narrow)
	check("narrowing again", err, narrowed.Scope == "one")
	revoked, err := s.RevokeKey(ctx, account, k.ID)
	found, _ := s.FindKey(secret)
	check("revoking", err, revoked.RevokedAt != nil && found.Key().RevokedAt != nil)
	_, err = s.RevokeKey(ctx, account, k.ID)
	check("revoking again", err, true)
	err = s.SetClaimGroups(ctx, u.ID, nil)
	check("losing the claim", err, len(s.Groups(account)[0].ByClaim) == 0)
	err = s.SetClaimGroups(ctx, u.ID, []string{"x"})
	check("joining by the claim", err, len(s.Groups(account)[0].ByClaim) == 1)
	must(t, s.SetClaimGroups(ctx, u.ID, []string{"x"}))
	edited, err := s.EditGroup(ctx, account, g.ID, func(f *store.GroupFields) error { f.Scope = "one"; return nil })
	check("narrowing the group", err, edited.Scope == "one")
	_, err = s.RemoveGroup(ctx, account, g.ID)
	check("removing the group", err, len(s.Groups(account)) == 0)
	only, err := s.SetAccount(ctx, account, func(a *store.Account) { a.GroupsOnly = true })
	check("groups only", err, only.GroupsOnly)
	ended, err := s.RemoveSessions(ctx, u.ID, "")
	check("ending sessions", err, ended == store.MaxTxnOps && len(s.Sessions(u.ID)) == 0)
	used, err := s.RedeemLink(ctx, linkSecret, "", "new", store.Ending{})
	check("using the link", err, used == u && s.PasswordHash(u.ID) == "new" && link.User == u.ID)
	removed, err := s.RemoveUser(ctx, account, u.ID)
	check("removing the user", err, removed == u && s.UserCount() == 0)
	if _, err := s.RemoveKey(ctx, account, "key_unknown"); store.Committed(err) {
		t.Errorf("a write that was not made: %v", err)
	}
}

// The text for users separates edges, so that each has its parts.
func TestUnconfirmedText(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	err := &store.Unconfirmed{Pending: []store.PendingEdge{{Edge: "a", Until: at}, {Edge: "b", Until: at}}}
	const want = "a has not answered, and without the store it accepts nothing after 2026-01-02T03:04:05Z; " +
		"b has not answered, and without the store it accepts nothing after 2026-01-02T03:04:05Z"
	if !strings.HasSuffix(err.Error(), ": "+want) {
		t.Error(err)
	}
}

// Refresh finds the records of other edges. Without an answer of the store it fails, since the
// record may exist.
func TestLookAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b, edge := openEdges(t)
		ctx := t.Context()
		_, secret, err := a.CreateKey(ctx, account, store.KeyFields{Name: "key", Scope: "*"})
		must(t, err)
		if _, ok := b.FindKey(secret); ok {
			t.Fatal("the edge is not late")
		}
		edge.Cut(true)
		if err := b.Refresh(ctx); !errors.Is(err, store.ErrUnavailable) || strings.Contains(err.Error(), "10.9.8.7") {
			t.Errorf("without the store: %v", err)
		}
		u := "usr_0000000000000000000000000a"
		if _, err := b.RemoveSessions(ctx, u, ""); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("ending sessions without the store: %v", err)
		}
		edge.Cut(false)
		if err := b.Refresh(ctx); err != nil {
			t.Error(err)
		}
		if _, ok := b.FindKey(secret); !ok {
			t.Error("the key is not found")
		}
	})
}

// gate is a KV whose watchers answer Progress when the test permits it.
type gate struct {
	store.KV
	asked chan chan struct{} // closed by the test
}

func (g gate) Watch(ctx context.Context, span store.Span, from int64) (store.Watcher, error) {
	w, err := g.KV.Watch(ctx, span, from)
	return gatedWatcher{w, g}, err
}

type gatedWatcher struct {
	store.Watcher
	gate
}

func (w gatedWatcher) Progress(ctx context.Context) (int64, error) {
	answer := make(chan struct{})
	w.asked <- answer
	revision, err := w.Watcher.Progress(ctx)
	<-answer
	return revision, err
}

// A call of Refresh needs a refresh that begins after it. All calls until that begins share it.
func TestLookAgainIsShared(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/gateway.db"
	synctest.Test(t, func(t *testing.T) {
		kv := storetest.OpenBolt(t, path)
		a, _ := storetest.OpenEdge(t, kv, store.Options{Edge: "a"})
		g := gate{kv, make(chan chan struct{})}
		b, _ := storetest.OpenEdge(t, g, store.Options{Edge: "b"})
		looked := make(chan error, 3)
		look := func() { looked <- b.Refresh(t.Context()) }
		go look()
		first := <-g.asked
		synctest.Wait()
		_, secret, err := a.CreateKey(t.Context(), account, store.KeyFields{Name: "key", Scope: "*"})
		must(t, err)
		go look()
		go look()
		synctest.Wait()
		close(first)
		if err := <-looked; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if len(looked) > 0 {
			t.Error("a look of before counts")
		}
		close(<-g.asked)
		if err := errors.Join(<-looked, <-looked); err != nil {
			t.Error(err)
		}
		if _, ok := b.FindKey(secret); !ok {
			t.Error("the key is not found")
		}
	})
}

// A code from one edge is used at a second edge and approved at a third one.
func TestPairingAtEdges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kv := storetest.OpenBolt(t, t.TempDir()+"/gateway.db")
		a, _ := storetest.OpenEdge(t, kv, store.Options{Edge: "a"})
		b, edge := storetest.OpenEdge(t, kv, store.Options{Edge: "b"})
		c, _ := storetest.OpenEdge(t, kv, store.Options{Edge: "c"})
		ctx, device := t.Context(), strings.Repeat("x", 43)
		p, code, err := a.CreatePairing(ctx, account, "ann")
		must(t, err)
		edge.Cut(true)
		if _, err := b.ClaimPairing(ctx, code, device, store.Device{}); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("without the store: %v", err)
		}
		edge.Cut(false)
		must(t, errOf(b.ClaimPairing(ctx, code, device, store.Device{Hostname: "box"})))
		if _, _, err := c.ApprovePairing(ctx, account, p.ID, "", "ann"); err != nil {
			t.Error(err)
		}
		_, err = b.ClaimPairing(ctx, "PAIR-0000-0000", device, store.Device{})
		if !errors.Is(err, store.ErrUnauthenticated) {
			t.Errorf("an unknown code: %v", err)
		}
	})
}
