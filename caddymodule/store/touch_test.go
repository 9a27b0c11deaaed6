package store_test

import (
	"context"
	"crypto/rand"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/rig/wait"
	"github.com/postern-dev/postern/tests/storetest"
)

// Times of use are written every few seconds, all in one write, and by Close.
func TestTouch(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	var secret string
	var last time.Time
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		s, err := openStore(path)
		must(t, err)
		// One more than fit into a transaction.
		var keys []store.Credential
		for range store.MaxTxnOps + 1 {
			_, secret, err = s.CreateKey(ctx, account, store.KeyFields{Name: rand.Text(), Scope: "*"})
			must(t, err)
			k, _ := s.FindKey(secret)
			keys = append(keys, k)
		}
		before := s.Stats().Revision
		for range 1000 {
			for _, k := range keys {
				s.Touch(k.LiveKey)
			}
			time.Sleep(time.Millisecond)
		}
		if got := s.Stats().Revision; got != before {
			t.Errorf("uses were written at once: revision %d, then %d", before, got)
		}
		last = time.Now().Add(-time.Millisecond).UTC()
		if got := keys[0].Key().LastUsedAt; got == nil || !got.Equal(last) {
			t.Errorf("last used at %v, not %v", got, last)
		}
		time.Sleep(10 * time.Second)
		if got := s.Stats().Revision; got != before+2 {
			t.Errorf("uses were written in %d transactions, not 2", got-before)
		}
		time.Sleep(time.Minute)
		if got := s.Stats().Revision; got != before+2 {
			t.Error("uses were written again though there was none")
		}
		last = time.Now().UTC()
		s.Touch(keys[len(keys)-1].LiveKey)
		must(t, s.Close())
	})
	k, ok := storetest.Open(t, path).FindKey(secret)
	if !ok || k.Key().LastUsedAt == nil || !k.Key().LastUsedAt.Equal(last) {
		t.Errorf("after a restart: %+v, want last use %v", k.Key(), last)
	}
}

// A time of use that was noted while another process revoked the key must not undo that.
func TestTouchRevokedKey(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	s := storetest.Open(t, path)
	k, secret := mustKey(t, s, "*")
	live, _ := s.FindKey(secret)
	s.Touch(live.LiveKey)
	must(t, errOf(s.RevokeKey(t.Context(), account, k.ID)))
	s.Touch(live.LiveKey)
	s = reopen(t, s, path)
	if live, _ = s.FindKey(secret); live.Key().RevokedAt == nil || live.Key().LastUsedAt == nil {
		t.Errorf("after a restart: %+v", live.Key())
	}
}

func TestRequestPathAllocatesNothing(t *testing.T) {
	s := storetest.New(t)
	s.SetSignInPolicy(store.SignInPolicy{Issuers: []string{issuer}, KeysNeed: time.Hour})
	u, _ := byIssuer(t, s, issuer, "ann", store.RoleMember)
	_, secret, err := s.CreateKey(t.Context(), account, store.KeyFields{Name: "ann's", Scope: "qwen*", Owner: u.ID})
	must(t, err)
	wait.Until(t, "the time since the option is on", func() bool { return !s.SuspendedFrom(u.ID).IsZero() })
	c, _, err := s.CreateConnector(t.Context(), account, "one")
	must(t, err)
	must(t, errOf(s.SetDeployment(t.Context(),
		store.Deployment{Account: account, Name: "qwen3", Connectors: []string{c.ID}})))
	ok := true
	if n := testing.AllocsPerRun(1000, func() {
		k, found := s.FindKey(secret)
		_, deployed := s.Deployment(k.Account(), "qwen3")
		_, unknown := s.FindKey("sk-svc-0000000000000000000000000000000000000000000")
		ok = ok && found && deployed && !unknown && k.Refusal(netip.Addr{}) == "" && k.Scope().Allows("qwen3")
		s.Touch(k.LiveKey)
	}); n > 0 {
		t.Errorf("a request allocates %v times in the store", n)
	}
	if !ok {
		t.Error("a lookup failed")
	}
}

// The time when a connector was last seen, and its last tunnel, survive a restart, and cost at most one write a minute.
func TestTouchConnector(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	var id string
	var last time.Time
	tunnel := &store.LastTunnel{Remote: "203.0.113.7:40312", Version: "v1.2.3", Models: []string{"qwen3"}}
	synctest.Test(t, func(t *testing.T) {
		s, err := openStore(path)
		must(t, err)
		c, _, err := s.CreateConnector(t.Context(), account, "box")
		must(t, err)
		id = c.ID
		if c, _ := s.Connector(id); c.LastSeenAt != nil {
			t.Errorf("seen at %v before it ever came", c.LastSeenAt)
		}
		before := s.Stats().Revision
		for range 90 {
			s.TouchConnector(id, nil)
			time.Sleep(time.Second)
		}
		if got := s.Stats().Revision; got != before+2 {
			t.Errorf("%d writes in 90 seconds, not 2", got-before)
		}
		s.TouchConnector("con_unknown", tunnel)
		s.TouchConnector(id, tunnel)
		s.TouchConnector(id, nil)
		last = time.Now().UTC()
		must(t, s.Close())
	})
	s := storetest.Open(t, path)
	c, _ := s.Connector(id)
	if c.LastSeenAt == nil || c.LastSeenAt.Before(last.Add(-time.Minute)) {
		t.Errorf("after a restart last seen %v, not within a minute of %v", c.LastSeenAt, last)
	}
	if got := c.LastTunnel; got == nil || got.Remote != tunnel.Remote || !slices.Equal(got.Models, tunnel.Models) {
		t.Errorf("the last tunnel is %+v", got)
	}
	if list := s.Connectors(account); len(list) != 1 || list[0].LastSeenAt == nil {
		t.Errorf("listed as %+v", list)
	}
	must(t, errOf(s.RemoveConnector(t.Context(), account, id)))
	must(t, s.Close())
	if n := storetest.Open(t, path).Stats().Connectors; n != 0 {
		t.Errorf("%d connectors after the removal", n)
	}
}
