package store_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

// Members by the claim and by hand are kept apart.
func TestClaimGroups(t *testing.T) {
	t.Parallel()
	g := &groupTest{T: t, Store: storetest.New(t)}
	ann, bob := mustUser(t, g.Store, "ann"), mustUser(t, g.Store, "bob")
	g.group(store.GroupFields{Name: "hand", Members: []string{ann.ID}})
	g.group(store.GroupFields{Name: "both", Members: []string{ann.ID}, Claim: "x"})
	g.group(store.GroupFields{Name: "claim", Claim: "y"})
	expect := func(when string, want ...string) {
		t.Helper()
		var got []string
		for _, group := range g.Groups(account) {
			if group.Has(ann.ID) {
				got = append(got, group.Name)
			}
			if len(group.ByClaim) > 0 && time.Since(group.ByClaim[0].AsOf) > time.Hour {
				t.Errorf("%s: as of %v", when, group.ByClaim[0].AsOf)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: in %v, want %v", when, got, want)
		}
	}
	must(t, g.SetClaimGroups(t.Context(), ann.ID, []string{"x", "y", "z", ""}))
	must(t, g.SetClaimGroups(t.Context(), bob.ID, []string{"y"}))
	expect("both values", "hand", "both", "claim")
	must(t, g.SetClaimGroups(t.Context(), ann.ID, []string{"x"}))
	expect("one value", "hand", "both")
	must(t, g.SetClaimGroups(t.Context(), ann.ID, []string{"x", "y"}))
	g.edit("claim", func(f *store.GroupFields) { f.Name = "renamed" })
	expect("a new name", "hand", "both", "renamed")
	g.edit("renamed", func(f *store.GroupFields) { f.Claim = "z" })
	expect("another value of the group", "hand", "both")
	must(t, g.SetClaimGroups(t.Context(), ann.ID, nil))
	expect("no claim", "hand", "both")
	g.edit("both", func(f *store.GroupFields) { f.Members = nil })
	expect("not by hand", "hand")
	wantError(t, g.SetClaimGroups(t.Context(), "usr_x", nil), store.ErrNotFound, "removed")
}

// A member by the claim who was removed long ago, without keys, is dropped at a sign-in of another one.
func TestRemovedClaimMember(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &groupTest{T: t, Store: storetest.New(t)}
		mustUser(t, g.Store, "root")
		ann, bob, cid := mustUser(t, g.Store, "ann"), mustUser(t, g.Store, "bob"), mustUser(t, g.Store, "cid")
		g.group(store.GroupFields{Name: "one", Claim: "x"})
		g.key(store.KeyFields{Name: "k", Owner: bob.ID})
		for _, u := range []store.User{cid, ann, bob} {
			must(t, g.SetClaimGroups(t.Context(), u.ID, []string{"x"}))
		}
		for _, name := range []string{"ann", "bob"} {
			must(t, errOf(g.RemoveUser(t.Context(), account, name)))
		}
		for _, want := range []int{3, 2} {
			must(t, g.SetClaimGroups(t.Context(), cid.ID, []string{"x"}))
			group := g.Groups(account)[0]
			if len(group.ByClaim) != want || !group.Has(bob.ID) || !group.Has(cid.ID) {
				t.Errorf("%d members must be left: %+v", want, group.ByClaim)
			}
			time.Sleep(store.SessionLife + time.Hour)
		}
	})
}
