package store_test

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

// groupTest is a store with users and groups.
type groupTest struct {
	*testing.T
	*store.Store
	secrets map[string]string
}

func (g *groupTest) group(f store.GroupFields) store.Group {
	g.Helper()
	if f.Scope == "" {
		f.Scope = "*"
	}
	created, err := g.CreateGroup(g.Context(), account, f)
	must(g.T, err)
	return created
}

func (g *groupTest) edit(name string, change func(*store.GroupFields)) {
	g.Helper()
	must(g.T, errOf(g.EditGroup(g.Context(), account, name, func(f *store.GroupFields) error { change(f); return nil })))
}

func (g *groupTest) key(f store.KeyFields) *store.LiveKey {
	g.Helper()
	if f.Scope == "" {
		f.Scope = "*"
	}
	_, secret, err := g.CreateKey(g.Context(), account, f)
	must(g.T, err)
	if g.secrets == nil {
		g.secrets = make(map[string]string)
	}
	g.secrets[f.Name] = secret
	live, _ := g.FindKey(secret)
	return live.LiveKey
}

func (g *groupTest) groupsOnly(on bool) {
	g.Helper()
	must(g.T, errOf(g.SetAccount(g.Context(), account, func(a *store.Account) { a.GroupsOnly = on })))
}

// uses checks which of the models a, b and c a key may use.
func (g *groupTest) uses(what string, k *store.LiveKey, want string) {
	g.Helper()
	got := ""
	for _, name := range []string{"a", "b", "c"} {
		if k.Allows(name) {
			got += name
		}
	}
	if got != want {
		g.Errorf("%s: the key may use %q, want %q", what, got, want)
	}
	after, _ := g.Key(account, k.ID())
	in, err := g.ScopeOf(account, after.KeyFields)
	must(g.T, err)
	if valid := after.State(time.Now()) == store.KeyValid; in.Allows("a") != (valid && k.Allows("a")) {
		g.Errorf("%s: a key with its fields could use something else", what)
	}
}

// limited checks the groups with limits of a key, and the lowest of these limits.
func (g *groupTest) limited(k *store.LiveKey, want []limits.Subject, lowest limits.UsageLimits) {
	g.Helper()
	if groups, got := k.GroupLimits(); !slices.Equal(groups, want) || got != lowest {
		g.Errorf("groups %v with the limits %+v, want %v and %+v", groups, got, want, lowest)
	}
}

// A key may use what one of its groups allows, and the limits and the priority of these groups hold.
func TestGroups(t *testing.T) {
	path := tempStore(t)
	s := storetest.Open(t, path)
	g := &groupTest{T: t, Store: s}
	ann, bob := mustUser(t, s, "Ann"), mustUser(t, s, "Bob")
	one := g.group(store.GroupFields{
		Name: "one", Members: []string{ann.ID}, Scope: "a", MaxPriority: store.PriorityLow,
		Limits: limits.UsageLimits{TokensPerDay: 100},
	})
	of := g.key(store.KeyFields{Name: "ann", Owner: ann.ID, Priority: store.PriorityHigh})
	narrow := g.key(store.KeyFields{Name: "narrow", Owner: ann.ID, Scope: "b,c"})
	free := g.key(store.KeyFields{Name: "bob", Owner: bob.ID, Priority: store.PriorityHigh})
	none := g.key(store.KeyFields{Name: "none"})
	given := g.key(store.KeyFields{Name: "given", Group: "one", Priority: store.PriorityLow})
	g.uses("one group", of, "a")
	g.uses("a scope without what the group allows", narrow, "")
	g.uses("no group", free, "abc")
	g.uses("no owner", none, "abc")
	if of.Priority() != store.PriorityLow || free.Priority() != store.PriorityHigh || given.Key().Group != one.ID {
		t.Errorf("priorities %q and %q", of.Priority(), free.Priority())
	}
	two := g.group(store.GroupFields{
		Name: "two", Members: []string{bob.ID, ann.ID, bob.ID}, Scope: "b", MaxPriority: store.PriorityNormal,
	})
	g.uses("two groups", of, "ab")
	g.uses("a scope within one of them", narrow, "b")
	g.uses("a second user", free, "b")
	want := []limits.Subject{{Of: limits.OfGroup, ID: one.ID}, {Of: limits.OfGroup, ID: two.ID}}
	if got := s.GroupsOf(of.ID()); of.Priority() != store.PriorityNormal || !slices.Equal(got, want) {
		t.Errorf("priority %q, groups %v", of.Priority(), got)
	}
	g.limited(of, want[:1], limits.UsageLimits{TokensPerDay: 100})
	g.edit("two", func(f *store.GroupFields) { f.Limits = limits.UsageLimits{TokensPerDay: 200, Concurrency: 2} })
	g.limited(of, want, limits.UsageLimits{TokensPerDay: 100, Concurrency: 2})
	g.edit("two", func(f *store.GroupFields) { f.Limits = limits.UsageLimits{TokensPerDay: 50} })
	g.limited(of, want, limits.UsageLimits{TokensPerDay: 50})
	g.edit("two", func(f *store.GroupFields) { f.Limits = limits.UsageLimits{} })
	g.limited(of, want[:1], limits.UsageLimits{TokensPerDay: 100})
	g.limited(none, nil, limits.UsageLimits{})
	if l := s.UsageLimits(account, want[0]); l.TokensPerDay != 100 || s.UsageLimits("other", want[0]).Any() {
		t.Errorf("limits %+v", l)
	}
	g.groupsOnly(true)
	g.uses("groups only, without an owner", none, "")
	g.uses("groups only, in a group", free, "b")
	all := s.Groups(account)
	s = reopen(t, s, path)
	if got := s.Groups(account); !reflect.DeepEqual(got, all) || len(got) != 2 || len(got[1].Members) != 2 {
		t.Errorf("after a restart: %+v, want %+v", got, all)
	}
	g.Store = s
	for name, want := range map[string]string{"ann": "ab", "bob": "b", "none": ""} {
		live, _ := s.FindKey(g.secrets[name])
		g.uses("after a restart", live.LiveKey, want)
	}
	if n := testing.AllocsPerRun(1000, func() {
		live, _ := s.FindKey(g.secrets["ann"])
		live.Refusal(netip.Addr{})
		live.Allows("c")
		live.GroupLimits()
		live.Priority()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// What a group takes away ends running requests before the write returns.
func TestGroupsEndRequests(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(g *groupTest)
		ended  map[string]store.Refusal // by key and model
	}{
		"a member leaves": {
			func(g *groupTest) { g.edit("two", func(f *store.GroupFields) { f.Members = nil }) },
			map[string]store.Refusal{"own b": store.RefusedScope, "given b": store.RefusedGroup},
		},
		"the scope narrows": {
			func(g *groupTest) { g.edit("one", func(f *store.GroupFields) { f.Scope = "c" }) },
			map[string]store.Refusal{"own a": store.RefusedScope, "claimed a": store.RefusedScope},
		},
		"the group is removed": {
			func(g *groupTest) { must(g.T, errOf(g.RemoveGroup(g.Context(), account, "two"))) },
			map[string]store.Refusal{"own b": store.RefusedScope, "given b": store.RefusedGroup},
		},
		"groups only": {
			func(g *groupTest) { g.groupsOnly(true) },
			map[string]store.Refusal{"none a": store.RefusedScope},
		},
		"the claim is missing": {
			func(g *groupTest) {
				cid, _ := g.FindUser("cid")
				must(g.T, g.SetClaimGroups(g.Context(), cid.ID, nil))
			},
			map[string]store.Refusal{"claimed a": store.RefusedScope},
		},
		"a larger group": {
			func(g *groupTest) { g.group(store.GroupFields{Name: "three"}) }, nil,
		},
		"limits": {
			func(g *groupTest) { g.edit("two", func(f *store.GroupFields) { f.Limits.RequestsPerDay = 1 }) }, nil,
		},
		"the user is removed": { // whose keys stay what they are
			func(g *groupTest) {
				must(g.T, errOf(g.RemoveUser(g.Context(), account, "ann")))
				g.edit("two", func(f *store.GroupFields) { f.Members = nil })
			},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &groupTest{T: t, Store: storetest.New(t)}
			mustUser(t, g.Store, "root")
			ann, cid := mustUser(t, g.Store, "ann"), mustUser(t, g.Store, "cid")
			g.group(store.GroupFields{Name: "one", Members: []string{ann.ID}, Scope: "a", Claim: "x"})
			g.group(store.GroupFields{Name: "two", Members: []string{ann.ID}, Scope: "b"})
			if name == "the claim is missing" {
				g.group(store.GroupFields{Name: "other", Members: []string{cid.ID}, Scope: "b"})
			}
			must(t, g.SetClaimGroups(t.Context(), cid.ID, []string{"x"}))
			g.key(store.KeyFields{Name: "own", Owner: ann.ID})
			g.key(store.KeyFields{Name: "given", Owner: ann.ID, Group: "two"})
			g.key(store.KeyFields{Name: "none"})
			g.key(store.KeyFields{Name: "claimed", Owner: cid.ID})
			requests := map[string]*running{}
			for _, r := range []string{"own a", "own b", "given b", "none a", "claimed a"} {
				key, model, _ := strings.Cut(r, " ")
				requests[r] = begin(t, g.Store, g.secrets[key], "", model)
			}
			c.change(g)
			for r, running := range requests {
				if why := c.ended[r]; why != "" {
					running.want(t, why)
				} else {
					running.want(t)
				}
			}
		})
	}
}

// A key that was given to a group is suspended while its owner is not in it, and never counts for less.
func TestGivenToAGroup(t *testing.T) {
	t.Parallel()
	g := &groupTest{T: t, Store: storetest.New(t)}
	ann, bob := mustUser(t, g.Store, "ann"), mustUser(t, g.Store, "bob")
	one := g.group(store.GroupFields{Name: "one", Members: []string{ann.ID}, Scope: "a"})
	g.group(store.GroupFields{Name: "two", Members: []string{ann.ID}, Scope: "b"})
	k := g.key(store.KeyFields{Name: "k", Owner: ann.ID, Group: one.ID})
	g.uses("of two groups", k, "a")
	state := func(want string) {
		t.Helper()
		found, _ := g.FindKey(g.secrets["k"])
		if got := found.Key().State(time.Now()); got != want || (found.Refusal(netip.Addr{}) == store.RefusedGroup) !=
			(want == store.KeySuspended) || (found.Key().Suspension() == "") == (want == store.KeySuspended) {
			t.Errorf("the key is %s, refused for %q", got, found.Refusal(netip.Addr{}))
		}
		if n := g.CountKeys(account)[want]; n != 1 {
			t.Errorf("%d keys are %s", n, want)
		}
	}
	state(store.KeyValid)
	g.edit("one", func(f *store.GroupFields) { f.Members = []string{bob.ID} })
	state(store.KeySuspended)
	edit := func(change func(*store.Key)) error {
		return errOf(g.EditKey(t.Context(), account, "k", func(k *store.Key) error { change(k); return nil }))
	}
	must(t, edit(func(k *store.Key) { k.Note = "still editable" }))
	state(store.KeySuspended)
	g.edit("one", func(f *store.GroupFields) { f.Members = []string{ann.ID} })
	state(store.KeyValid)
	wantError(t, edit(func(k *store.Key) { k.Owner = bob.ID }), store.ErrConflict, "owner of the key is not in the group")
	wantError(t, edit(func(k *store.Key) { k.Group = "three" }), store.ErrNotFound, `group "three" not found`)
	must(t, errOf(g.RemoveGroup(t.Context(), account, one.ID)))
	state(store.KeySuspended)
	must(t, edit(func(k *store.Key) { k.Group = "" }))
	state(store.KeyValid)
	g.uses("of all groups", k, "b")
	other := store.KeyFields{Name: "x", Scope: "*", Owner: bob.ID, Group: "two"}
	wantError(t, errOf(g.CreateKey(t.Context(), account, other)), store.ErrConflict, "not in the group")
	wantError(t, errOf(g.CreateSetup(t.Context(), account, store.KeyFields{Name: "x", Scope: "*", Group: "none"})),
		store.ErrNotFound, "not found")
}

// While a group or its account cannot be read, keys without another group may be used for nothing.
func TestUnreadableGroup(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"groups/", "accounts/"} {
		kv, err := store.OpenBolt(tempStore(t), store.BoltOptions{})
		must(t, err)
		s, err := store.New(kv, store.Options{})
		must(t, err)
		t.Cleanup(func() { _ = s.Close() })
		g := &groupTest{T: t, Store: s}
		ann := mustUser(t, s, "ann")
		group := g.group(store.GroupFields{Name: "one", Members: []string{ann.ID}, Scope: "a"})
		k := g.key(store.KeyFields{Name: "k", Owner: ann.ID})
		g.uses("before", k, "a")
		running := begin(t, s, g.secrets["k"], "", "a")
		path := map[string]string{"groups/": "groups/default/" + group.ID, "accounts/": "accounts/default"}[dir]
		before, err := kv.Get(t.Context(), path)
		must(t, err)
		_, err = kv.Txn(t.Context(), store.Txn{Then: []store.Op{store.Put(path, []byte(`{"v":99}`))}})
		must(t, err)
		must(t, s.CatchUp(t.Context()))
		if dir == "groups/" {
			g.uses("unreadable", k, "")
			running.want(t, store.RefusedScope)
		} else {
			g.uses("of an unreadable account", k, "a")
			none := g.boundBy(store.KeyFields{Scope: "*"})
			if none {
				t.Error("a key without a group may be used while its account cannot be read")
			}
		}
		_, err = kv.Txn(t.Context(), store.Txn{Then: []store.Op{store.Put(path, before.Value)}})
		must(t, err)
		must(t, s.CatchUp(t.Context()))
		g.uses("readable again", k, "a")
	}
}

// boundBy reports whether a key with these fields may be used for the model a.
func (g *groupTest) boundBy(f store.KeyFields) bool {
	in, err := g.ScopeOf(account, f)
	must(g.T, err)
	return in.Allows("a")
}

func TestGroupErrors(t *testing.T) {
	t.Parallel()
	g := &groupTest{T: t, Store: storetest.New(t)}
	must(t, errOf(g.CreateAccount(t.Context(), "other")))
	there, err := g.CreateUser(t.Context(), "other", "there", "", store.RoleAdmin)
	must(t, err)
	g.group(store.GroupFields{Name: "one"})
	for _, c := range []struct {
		account string
		fields  store.GroupFields
		kind    error
		part    string
	}{
		{account, store.GroupFields{}, store.ErrInvalid, "name of the group is empty"},
		{account, store.GroupFields{Name: "grp_1"}, store.ErrInvalid, "begins like an id"},
		{account, store.GroupFields{Name: "one", Scope: "*"}, store.ErrExists, "another group has the name"},
		{account, store.GroupFields{Name: "x", Scope: ""}, store.ErrInvalid, "scope is empty"},
		{account, store.GroupFields{Name: "x", Scope: "*", MaxPriority: "x"}, store.ErrInvalid, "high, normal or low"},
		{account, store.GroupFields{Name: "x", Scope: "*", Claim: "a\nb"}, store.ErrInvalid, "printable"},
		{account, store.GroupFields{Name: "x", Scope: "*", Claim: strings.Repeat("a", 257)}, store.ErrInvalid, "at most 256"},
		{account, store.GroupFields{Name: "x", Scope: "*", Members: []string{there.ID}}, store.ErrNotFound, "user"},
		{
			account,
			store.GroupFields{Name: "x", Scope: "*", Limits: limits.UsageLimits{Concurrency: -1}},
			store.ErrInvalid,
			"concurrency",
		},
		{account, store.GroupFields{Name: "x", Scope: "*", Members: make([]string, 8001)}, store.ErrLimit, "maximum is 8000"},
		{"nobody", store.GroupFields{Name: "x", Scope: "*"}, store.ErrNotFound, "unknown account"},
	} {
		wantError(t, errOf(g.CreateGroup(t.Context(), c.account, c.fields)), c.kind, c.part)
	}
	wantError(t, errOf(g.RemoveGroup(t.Context(), "other", "one")), store.ErrNotFound, "list of groups")
	must(t, errOf(g.CreateGroup(t.Context(), "other", store.GroupFields{Name: "one", Scope: "*"})))
	for i := range 99 {
		g.group(store.GroupFields{Name: strings.Repeat("x", i+1)})
	}
	_, err = g.CreateGroup(t.Context(), account, store.GroupFields{Name: "y", Scope: "*"})
	wantError(t, err, store.ErrLimit, "maximum")
}
