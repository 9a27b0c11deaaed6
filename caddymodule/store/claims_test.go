package store_test

import (
	"slices"
	"sync/atomic"
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

// A sign-in that changes no member writes no group, and still says as of when the membership is.
func TestSignInsWriteNoGroups(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := withIssuers(t)
		mustUser(t, s, "root")
		g := &groupTest{T: t, Store: s}
		team := g.group(store.GroupFields{Name: "team", Claim: "ml"})
		g.group(store.GroupFields{Name: "others", Claim: "x"})
		var written atomic.Int64
		defer s.Subscribe(func(c store.Change) {
			if c.Kind == store.KindGroup {
				written.Add(1)
			}
		})()
		signIn := func(subject string, want int64, groups ...string) {
			t.Helper()
			time.Sleep(time.Hour)
			_, _, _, err := s.SignInByIssuer(t.Context(), store.IssuerSignIn{
				Issuer: issuer, Subject: subject, Account: account, Name: subject, Role: store.RoleMember, Groups: groups,
			})
			must(t, err)
			if synctest.Wait(); written.Swap(0) != want {
				t.Errorf("the sign-in of %s with %v has not written %d groups", subject, groups, want)
			}
		}
		asOf := func(want ...time.Duration) {
			t.Helper()
			var got []time.Duration
			for _, group := range s.Groups(account) {
				for _, m := range s.ClaimedMembers(group) {
					if group.ID == team.ID {
						got = append(got, time.Since(m.AsOf))
					}
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("members as of %v ago, want %v", got, want)
			}
		}
		signIn("ann", 1, "ml")
		signIn("bob", 1, "ml")
		signIn("ann", 0, "ml")
		asOf(0, time.Hour)
		signIn("cid", 0)
		asOf(time.Hour, 2*time.Hour)
		signIn("bob", 1)
		asOf(2 * time.Hour)
		signIn("ann", 1, "ml", "x")
		asOf(0)
	})
}
