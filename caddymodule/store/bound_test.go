package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/scope"
	"github.com/postern-dev/postern/tests/rig/cputime"
)

// To bind keys again takes time in proportion to keys and members, and touches only keys whose bounds change.
func TestBindingIsBounded(t *testing.T) {
	const users, groups = 4000, 100
	all, err := scope.Parse("*")
	must(t, err)
	d := new(view).draft(time.Now())
	accountKind.insert(d, &accountRecord{Account: Account{ID: "a"}})
	var members []string
	for i := range users {
		members = append(members, fmt.Sprintf("usr_%026d", i))
		k := &keyRecord{Key: Key{ID: newID(prefixKey, time.Now()), Account: "a"}, scope: all, live: new(LiveKey)}
		_, k.Hash = newSecret(prefixSecret)
		k.Owner = members[i]
		keyKind.insert(d, k)
	}
	for i := range groups {
		g := &groupRecord{Group: Group{ID: fmt.Sprintf("grp_%026d", i), Account: "a"}, scope: all}
		g.Scope, g.Members = "*", members[:users-1]
		groupKind.insert(d, g)
	}
	d.rebind("a")
	start := cputime.Used()
	d.bindKeys()
	if used := cputime.Used() - start; used > 2*time.Second || len(d.updates) != users-1 {
		t.Errorf("%d keys were bound in %v of CPU time", len(d.updates), used)
	}
	d.updates = nil
	if d.bindKeys(); len(d.updates) != 0 {
		t.Errorf("%d keys were bound again without a change", len(d.updates))
	}
}

// The record of a group has room for all members that it may have, by hand and by the claim. One more gets an error.
func TestManyMembers(t *testing.T) {
	kv, err := OpenBolt(filepath.Join(t.TempDir(), "gateway.db"), BoltOptions{})
	must(t, err)
	s, err := New(kv, Options{})
	must(t, err)
	defer s.Close()
	ctx := t.Context()
	u, err := s.CreateUser(ctx, DefaultAccount, "Ann", "", RoleAdmin)
	must(t, err)
	g, err := s.CreateGroup(ctx, DefaultAccount, GroupFields{Name: "x", Scope: "*", Claim: "x"})
	must(t, err)
	must(t, s.update(ctx, "filling the group", func(t *tx) error {
		r := groupKind.load(t, DefaultAccount, g.ID)
		for range maxMembers {
			id := newID(prefixUser, time.Now())
			r.Members, r.ByClaim = append(r.Members, id), append(r.ByClaim, ClaimMember{id, s.time()})
		}
		groupKind.save(t, r)
		return nil
	}))
	if err := s.SetClaimGroups(ctx, u.ID, []string{"x"}); !errors.Is(err, ErrLimit) {
		t.Errorf("one more: %v", err)
	}
}
