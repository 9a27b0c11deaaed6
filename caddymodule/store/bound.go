package store

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/scope"
)

// bound is what groups make of a key. Keys of the same owner and group share it. It is decided when records change,
// not for each request.
type bound struct {
	groups   []limits.Subject // by id
	limited  []limits.Subject // those with limits
	lowest   limits.UsageLimits
	scope    scope.Scope // what the key may be used for at most
	priority int         // the index of the largest one in Priorities
	left     bool        // the key was given to a group in which its owner is not
}

// accountGroups are the groups of an account, to bind keys to them.
type accountGroups struct {
	groups []*groupRecord // by id
	only   bool           // keys without a group may be used for nothing
	bounds map[[2]string]*bound
}

// groupsOf returns the groups of an account. While one of them or the account cannot be read, keys without a group may
// be used for nothing.
func (r *records) groupsOf(account string) *accountGroups {
	a, _ := r.accounts.byOwner.value("").get(account)
	g := &accountGroups{only: a != nil && a.GroupsOnly, bounds: make(map[[2]string]*bound)}
	for _, group := range r.groups.byOwner.value(account).all() {
		g.groups = append(g.groups, group)
	}
	slices.SortFunc(g.groups, func(a, b *groupRecord) int { return strings.Compare(a.ID, b.ID) })
	for path := range r.unreadable.all() {
		g.only = g.only || path == accountKind.path("", account) || strings.HasPrefix(path, groupKind.span(account))
	}
	return g
}

// of returns the bound of a key with an owner and a group, nil if nothing but the account bounds it.
func (g *accountGroups) of(owner, group string) *bound {
	if len(g.groups) == 0 && !g.only && group == "" {
		return nil
	}
	key := [2]string{owner, group}
	b, ok := g.bounds[key]
	if !ok {
		b = g.decide(owner, group)
		g.bounds[key] = b
	}
	return b
}

func (g *accountGroups) decide(owner, group string) *bound {
	b := &bound{priority: len(Priorities()) - 1, left: group != ""}
	var scopes []scope.Scope
	for _, r := range g.groups {
		if group != "" && r.ID != group || group == "" && !r.Has(owner) {
			continue
		}
		b.left = b.left && owner != "" && !r.Has(owner)
		of := limits.Subject{Of: limits.OfGroup, ID: r.ID}
		if b.groups = append(b.groups, of); r.Limits != (limits.UsageLimits{}) {
			b.limited, b.lowest = append(b.limited, of), b.lowest.Lowest(r.Limits)
		}
		b.priority = min(b.priority, slices.Index(Priorities(), cmp.Or(r.MaxPriority, PriorityHigh)))
		scopes = append(scopes, r.scope)
	}
	if len(b.groups) == 0 && !g.only && group == "" {
		return nil
	}
	b.scope = scope.Union(scopes...)
	return b
}

// bind binds the key to its groups.
func (r *keyRecord) bind(b *bound) {
	r.bound = b
	if r.scope = r.scope.Within(nil); b != nil {
		r.scope = r.scope.Within(&b.scope)
	}
	r.LeftGroup = b != nil && b.left
}

// rebind notes that the groups of an account have changed. The first draft reads all keys.
func (d *draft) rebind(account string) {
	if !d.first && !slices.Contains(d.rebound, account) {
		d.rebound = append(d.rebound, account)
	}
}

// bindKeys binds the keys of the draft, and all keys of accounts whose groups have changed.
func (d *draft) bindKeys() {
	accounts := make(map[string]*accountGroups)
	of := func(r *keyRecord) *bound {
		g := accounts[r.Account]
		if g == nil {
			g = d.groupsOf(r.Account)
			accounts[r.Account] = g
		}
		return g.of(r.Owner, r.Group)
	}
	for _, r := range d.keys {
		r.bind(of(r))
	}
	for _, account := range d.rebound {
		var changed []*keyRecord
		differ := make(map[[2]*bound]bool) // most keys share their bounds
		for _, r := range d.records.keys.byOwner.value(account).all() {
			pair := [2]*bound{r.bound, of(r)}
			differs, known := differ[pair]
			if !known {
				differs = !reflect.DeepEqual(pair[0], pair[1])
				differ[pair] = differs
			}
			if differs {
				changed = append(changed, r)
			}
		}
		for _, r := range changed {
			next := *r
			next.bind(of(r))
			keyKind.insert(d, &next) // in place of r: their ids and hashes are equal
			d.updates = append(d.updates, &next)
		}
	}
}

// ScopeOf returns what a key with these fields may be used for.
func (s *Store) ScopeOf(account string, f KeyFields) (scope.Scope, error) {
	own, err := scope.Parse(f.Scope)
	r := keyRecord{scope: own}
	r.bind(s.view.Load().groupsOf(account).of(f.Owner, f.Group))
	if r.LeftGroup {
		return scope.Scope{}, err
	}
	return r.scope, err
}

// GroupsOf returns the groups that a key counts for. It allocates nothing.
func (s *Store) GroupsOf(key string) []limits.Subject {
	if r, _ := keyKind.byID(s.view.Load(), key); r.bound != nil {
		return r.bound.groups
	}
	return nil
}
