package store_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/rig/wait"
	"github.com/postern-dev/postern/tests/storetest"
)

func TestConnectorNames(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	approve := func(hostname, name string) (store.Connector, error) {
		_, code := mustPairing(t, s)
		must(t, errOf(s.ClaimPairing(t.Context(), code, deviceSecret(1), store.Device{Hostname: hostname})))
		_, c, err := s.ApprovePairing(t.Context(), account, code, name, "Ann")
		if err != nil {
			if _, err := s.DenyPairing(t.Context(), account, code, "Ann"); err != nil {
				t.Errorf("after a failed approval: %v", err)
			}
		}
		return c, err
	}
	for _, c := range [][2]string{
		{"gpu", "gpu"},
		{"gpu", "gpu-2"},
		{"gpu", "gpu-3"},
		{"", "connector"},
		{"con_x", "connector-2"},
		{" a\x00b\xff ", "ab"},
		{strings.Repeat("é", 100), strings.Repeat("é", 60)},
		{strings.Repeat("é", 100), strings.Repeat("é", 60) + "-2"},
		{"<script>alert(1)</script>", "<script>alert(1)</script>"},
		{"gp", "gp"},
	} {
		if got, err := approve(c[0], ""); err != nil || got.Name != c[1] {
			t.Errorf("a device called %q became %q, not %q, %v", c[0], got.Name, c[1], err)
		}
	}
	if got, err := approve("gpu", "mine"); err != nil || got.Name != "mine" {
		t.Errorf("named %q, %v", got.Name, err)
	}
	wantError(t, errOf(approve("gpu", "mine")), store.ErrExists, `another connector has the name "mine"`)
	wantError(t, errOf(approve("gpu", "con_mine")), store.ErrInvalid, "begins like an id")
}

// Devices of one name that are approved concurrently get different names.
func TestConnectorNamesConcurrent(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	var wg sync.WaitGroup
	for i := range 8 {
		_, code := mustPairing(t, s)
		mustClaim(t, s, code, i)
		wg.Go(func() {
			if _, _, err := s.ApprovePairing(t.Context(), account, code, "", "Ann"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var names []string
	for _, c := range s.Connectors(account) {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	if want := []string{"gpu", "gpu-2", "gpu-3", "gpu-4", "gpu-5", "gpu-6", "gpu-7", "gpu-8"}; !slices.Equal(names, want) {
		t.Errorf("named %q", names)
	}
}

// Of concurrent decisions, in two processes, one wins. Only an approval that wins creates a
// connector.
func TestDecideConcurrent(t *testing.T) {
	t.Parallel()
	kv := storetest.OpenBolt(t, tempStore(t))
	stores := [2]*store.Store{newStore(t, share(kv)), newStore(t, share(kv))}
	for round := range 10 {
		p, code := mustPairing(t, stores[0])
		wait.Until(t, "both know the code", func() bool { _, ok := stores[1].Pairing(account, code); return ok })
		mustClaim(t, stores[0], code, 1)
		var approved, denied atomic.Int32
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				s, counter, err := stores[i%2], &approved, error(nil)
				if round > 4 && i > 2 {
					counter = &denied
					_, err = s.DenyPairing(t.Context(), account, code, "Ann")
				} else {
					_, _, err = s.ApprovePairing(t.Context(), account, p.ID, "", "Ann")
				}
				if err == nil {
					counter.Add(1)
				} else {
					wantError(t, err, store.ErrConflict, "already ")
				}
			})
		}
		wg.Wait()
		if approved.Load()+denied.Load() != 1 {
			t.Errorf("%d approvals and %d denials won", approved.Load(), denied.Load())
		}
		for _, s := range stores {
			wait.Until(t, "both show the decision", func() bool { p, _ := s.Pairing(account, code); return p.DecidedAt != nil })
			if n := len(s.Connectors(account)); n != int(approved.Load()) {
				t.Errorf("%d connectors after %d approvals", n, approved.Load())
			}
		}
		for _, c := range stores[0].Connectors(account) {
			must(t, errOf(stores[0].RemoveConnector(t.Context(), account, c.ID)))
		}
		wait.Until(t, "both are clean", func() bool { return len(stores[1].Connectors(account)) == 0 })
	}
}

// overtakenKV runs other writes just before the first read of a key.
type overtakenKV struct {
	store.KV
	key    string
	others func()
	once   sync.Once
}

func (k *overtakenKV) Get(ctx context.Context, key string) (store.Item, error) {
	if key == k.key {
		k.once.Do(k.others)
	}
	return k.KV.Get(ctx, key)
}

// A decision that is overtaken after its first read fails with the winner's decision, and not because
// the winner's connector has the name.
func TestOvertaken(t *testing.T) {
	t.Parallel()
	kv := storetest.OpenBolt(t, tempStore(t))
	winner := newStore(t, share(kv))
	_, code := mustPairing(t, winner)
	mustClaim(t, winner, code, 1)
	_, secret := mustLink(t, winner, store.LinkInvitation, "")
	approve := func(s *store.Store) error {
		_, _, err := s.ApprovePairing(t.Context(), account, code, "mine", "Ann")
		return err
	}
	redeem := func(s *store.Store) error {
		_, err := s.RedeemLink(t.Context(), secret, "Ann", "hash", store.Ending{})
		return err
	}
	for key, c := range map[string]struct {
		do   func(*store.Store) error
		kind error
		part string
	}{
		"connector_names/default/mine": {approve, store.ErrConflict, `already approved by "Ann"`},
		"user_names/ann":               {redeem, store.ErrNotFound, "already used"},
	} {
		overtaken := &overtakenKV{KV: share(kv), key: key, others: func() {
			if err := c.do(winner); err != nil {
				t.Error(err)
			}
		}}
		wantError(t, c.do(newStore(t, overtaken)), c.kind, c.part)
	}
}

// A default name that another connector takes meanwhile gets a number.
func TestConnectorNameIsTakenMeanwhile(t *testing.T) {
	t.Parallel()
	kv := storetest.OpenBolt(t, tempStore(t))
	other := newStore(t, share(kv))
	_, code := mustPairing(t, other)
	mustClaim(t, other, code, 1)
	s := newStore(t, &overtakenKV{KV: share(kv), key: "connector_names/default/gpu", others: func() {
		if _, _, err := other.CreateConnector(t.Context(), account, "gpu"); err != nil {
			t.Error(err)
		}
	}})
	if _, c, err := s.ApprovePairing(t.Context(), account, code, "", "Ann"); err != nil || c.Name != "gpu-2" {
		t.Errorf("named %q, %v", c.Name, err)
	}
}

// A setup link creates no user if another user is created meanwhile.
func TestSetupIsOvertaken(t *testing.T) {
	t.Parallel()
	kv := storetest.OpenBolt(t, tempStore(t))
	other := newStore(t, share(kv))
	_, secret := mustLink(t, other, store.LinkSetup, "")
	s := newStore(t, &overtakenKV{KV: share(kv), key: "user_names/ann", others: func() { mustUser(t, other, "bob") }})
	_, err := s.RedeemLink(t.Context(), secret, "Ann", "hash", store.Ending{})
	wantError(t, err, store.ErrConflict, "already set up")
	if other.UserCount() != 1 {
		t.Errorf("there are %d users", other.UserCount())
	}
}
