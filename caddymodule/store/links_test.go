package store_test

import (
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

func mustLink(t testing.TB, s *store.Store, kind, user string) (store.Link, string) {
	t.Helper()
	l, secret, err := s.CreateLink(t.Context(),
		store.Link{Kind: kind, Account: account, User: user, CreatedBy: "test"}, time.Hour)
	must(t, err)
	return l, secret
}

func TestLinks(t *testing.T) {
	t.Parallel()
	c := newClock()
	path := tempStore(t)
	s := c.open(t, path)
	l, secret := mustLink(t, s, store.LinkInvitation, "ignored")
	want := store.Link{
		ID: l.ID, Kind: store.LinkInvitation, Account: account, Role: store.RoleAdmin, CreatedBy: "test",
		CreatedAt: c.now().UTC(), ExpiresAt: c.now().Add(time.Hour).UTC(),
	}
	if l != want || !regexp.MustCompile(`^lnk_[0-9a-v]{26}$`).MatchString(l.ID) ||
		!regexp.MustCompile(`^[0-9A-Za-z]{43}$`).MatchString(secret) {
		t.Errorf("created %+v with a secret of %d bytes", l, len(secret))
	}
	s = c.open(t, closed(t, s, path))
	if got, err := s.FindLink(secret); err != nil || got != l {
		t.Errorf("found %+v, %v", got, err)
	}
	if got := s.Links(account); !slices.Equal(got, []store.Link{l}) || s.Links("other") != nil {
		t.Errorf("links %+v", got)
	}
	for _, wrong := range []string{"", secret[1:], strings.Repeat("0", 43)} {
		wantError(t, errOf(s.FindLink(wrong)), store.ErrNotFound, "invalid link")
		_, err := s.RedeemLink(t.Context(), wrong, "x", "", store.Ending{})
		wantError(t, err, store.ErrNotFound, "invalid link")
	}
	c.advance(time.Hour - time.Millisecond)
	if _, err := s.FindLink(secret); err != nil {
		t.Errorf("just before its end: %v", err)
	}
	c.advance(time.Millisecond)
	wantError(t, errOf(s.FindLink(secret)), store.ErrExpired, "has expired")
	_, err := s.RedeemLink(t.Context(), secret, "x", "", store.Ending{})
	wantError(t, err, store.ErrExpired, "has expired", "ask for a new one")
	if len(s.Links(account)) != 0 || s.UserCount() != 0 {
		t.Errorf("links %+v, %d users", s.Links(account), s.UserCount())
	}

	l, secret = mustLink(t, s, store.LinkInvitation, "")
	for _, c := range [][2]string{{"other", l.ID}, {account, ""}, {account, "lnk_x"}, {account + "/", l.ID}} {
		wantError(t, s.RemoveLink(t.Context(), c[0], c[1]), store.ErrNotFound, "not found in the account")
	}
	must(t, s.RemoveLink(t.Context(), account, l.ID))
	wantError(t, errOf(s.RedeemLink(t.Context(), secret, "x", "", store.Ending{})), store.ErrNotFound, "revoked")
}

func TestCreateLinkErrors(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	for _, c := range []struct {
		l    store.Link
		life time.Duration
		kind error
		part string
	}{
		{store.Link{Kind: "x", Account: account}, time.Hour, store.ErrInvalid, `kind "x"`},
		{store.Link{Kind: store.LinkSetup, Account: account}, 0, store.ErrInvalid, "must last"},
		{store.Link{Kind: store.LinkInvitation, Account: "nobody"}, time.Hour, store.ErrNotFound, "unknown account"},
		{
			store.Link{Kind: store.LinkRecovery, Account: account, User: "ann"},
			time.Hour, store.ErrNotFound,
			"not found in the account",
		},
	} {
		wantError(t, errOf(s.CreateLink(t.Context(), c.l, c.life)), c.kind, c.part)
	}
}

func TestSetupLink(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	_, invitation := mustLink(t, s, store.LinkInvitation, "")
	_, secret := mustLink(t, s, store.LinkSetup, "")
	if _, err := s.FindLink(invitation); err != nil {
		t.Errorf("the setup link ended an invitation: %v", err)
	}
	// A user, even one of the same name, is created by other means meanwhile.
	mustUser(t, s, "Ann")
	_, err := s.RedeemLink(t.Context(), secret, "ann", "hash", store.Ending{})
	wantError(t, err, store.ErrConflict, "already set up")
	if s.UserCount() != 1 {
		t.Errorf("%d users", s.UserCount())
	}
}

// Of concurrent uses of a link, in two processes, one succeeds.
func TestRedeemLinkConcurrent(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{store.LinkSetup, store.LinkInvitation, store.LinkRecovery} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			kv := storetest.OpenBolt(t, tempStore(t))
			stores := [2]*store.Store{newStore(t, share(kv)), newStore(t, share(kv))}
			user := ""
			if kind == store.LinkRecovery {
				user = mustUser(t, stores[0], "Ann").ID
			}
			_, secret := mustLink(t, stores[0], kind, user)
			wait.Until(t, "both know the link", func() bool { _, err := stores[1].FindLink(secret); return err == nil })
			var won atomic.Int32
			var wg sync.WaitGroup
			for i := range 8 {
				name := "Ann" // some of one name, some not
				if i > 3 {
					name = deviceSecret(i)
				}
				wg.Go(func() {
					_, err := stores[i%2].RedeemLink(t.Context(), secret, name, "hash", store.Ending{})
					switch {
					case err == nil:
						won.Add(1)
					case kind == store.LinkSetup && strings.Contains(err.Error(), "already set up"):
						wantError(t, err, store.ErrConflict)
					default:
						wantError(t, err, store.ErrNotFound, "already used")
					}
				})
			}
			wg.Wait()
			if won.Load() != 1 {
				t.Errorf("%d used the link", won.Load())
			}
			for _, s := range stores {
				wait.Until(t, "there is one user", func() bool { return s.UserCount() == 1 })
			}
		})
	}
}

// Of two setup links that are created concurrently, one remains.
func TestSetupLinkConcurrent(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { mustLink(t, s, store.LinkSetup, "") })
	}
	wg.Wait()
	if n := len(s.Links(account)); n != 1 {
		t.Errorf("there are %d setup links", n)
	}
}

// The links of a removed user do not work.
func TestLinksOfARemovedUser(t *testing.T) {
	t.Parallel()
	path := tempStore(t)
	s := storetest.Open(t, path)
	ann, bob := mustUser(t, s, "ann"), mustUser(t, s, "bob")
	linkBy := func(user store.User, kind string) (link store.Link, secret string) {
		link, secret, err := s.CreateLink(t.Context(),
			store.Link{Kind: kind, Account: account, User: bob.ID, CreatedBy: user.ID}, time.Hour)
		if err != nil || link.CreatedBy != user.Name {
			t.Fatalf("%+v, %v", link, err)
		}
		return link, secret
	}
	_, invitation := linkBy(ann, store.LinkInvitation)
	_, recovery := linkBy(ann, store.LinkRecovery)
	kept, keptSecret := linkBy(bob, store.LinkInvitation)
	must(t, errOf(s.RemoveUser(t.Context(), account, ann.ID)))
	for _, s := range []*store.Store{s, reopen(t, s, path)} {
		for _, secret := range []string{invitation, recovery} {
			wantError(t, errOf(s.FindLink(secret)), store.ErrNotFound)
			wantError(t, errOf(s.RedeemLink(t.Context(), secret, "ann2", "hash", store.Ending{})), store.ErrNotFound)
		}
		if links := s.Links(account); len(links) != 1 || links[0] != kept {
			t.Errorf("there are %+v", links)
		}
		if _, err := s.FindLink(keptSecret); err != nil {
			t.Errorf("the invitation of another user: %v", err)
		}
	}
	// Another link is created while its creator is removed.
	_, _, err := s.CreateLink(t.Context(),
		store.Link{Kind: store.LinkInvitation, Account: account, CreatedBy: ann.ID}, time.Hour)
	wantError(t, err, store.ErrNotFound)
}
