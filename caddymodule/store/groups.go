package store

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/scope"
	"github.com/postern-dev/postern/connector/text"
)

// GroupFields are the fields of a group that people set. Tags describe them as those of [KeyFields].
type GroupFields struct {
	// Name is unique among the groups of the account.
	Name string `json:"name" need:"required" editflag:"rename" edithelp:"The new name of the group" help:"The name of the group" column:"NAME"`
	// Members are ids of users, in order. A removed user stays a member while a key remains of the user.
	Members []string `json:"members,omitempty" flag:"member" help:"Its users, by name or id, in addition to those by the claim; [] is none" flaghelp:"Its users, by name or id, separated by commas (replaces the others)" format:"list"`
	Scope   string   `json:"scope" need:"filled" help:"The deployments that its keys may use at most (default \"*\", all of them)" column:"SCOPE"`
	// Limits are those of all keys that count for the group together.
	Limits limits.UsageLimits `json:"limits,omitzero" help:"Limits of all its keys together; 0 is no limit" flaghelp:"All its keys together: "`
	// MaxPriority is "" for PriorityHigh.
	MaxPriority Priority `json:"max_priority,omitempty" help:"The largest priority of its keys: high, normal or low (default high)"`
	Claim       string   `json:"claim,omitempty" help:"Users with this value in the claim groups_claim of their issuer are members; \"\" for none"`
}

// Group bounds what the keys of its members may use.
type Group struct {
	ID      string `json:"id" column:"ID"`
	Account string `json:"account"`
	GroupFields
	// ByClaim are the members by the claim.
	ByClaim   []ClaimMember `json:"by_claim,omitempty"`
	CreatedAt time.Time     `json:"created_at" column:"CREATED,date"`
	CreatedBy Actor         `json:"created_by,omitzero"`
	ChangedBy Actor         `json:"changed_by,omitzero"`
}

// ClaimMember is a user whose issuer has made the user a member.
type ClaimMember struct {
	User string    `json:"user"`  // id
	AsOf time.Time `json:"as_of"` // the time of the user's last sign-in
}

// Has reports whether a user is a member.
func (g *Group) Has(user string) bool {
	_, has := slices.BinarySearch(g.Members, user)
	return has || g.hasByClaim(user)
}

func (g *Group) hasByClaim(user string) bool {
	_, has := slices.BinarySearchFunc(g.ByClaim, ClaimMember{User: user}, byUser)
	return has
}

// byUser is the order of ByClaim.
func byUser(a, b ClaimMember) int { return strings.Compare(a.User, b.User) }

const (
	maxGroups     = 100  // of an account
	maxGroupClaim = 256  // bytes
	maxMembers    = 8000 // by hand, and by the claim, so that the record can be stored
)

type groupRecord struct {
	header
	Group

	scope scope.Scope // parsed
}

func (r *groupRecord) key() recordKey { return recordKey{r.Account, r.ID} }
func (r *groupRecord) label() string  { return r.Name }

func (r *groupRecord) check() (err error) {
	slices.Sort(r.Members)
	slices.SortFunc(r.ByClaim, byUser)
	r.scope, err = scope.Parse(r.Scope)
	return err
}

var groupKind = &kind[groupRecord, *groupRecord]{
	dir: "groups/", prefix: prefixGroup, what: KindGroup, remains: true,
	collection: func(r *records) *collection[*groupRecord] { return &r.groups },
	adopt:      func(d *draft, _, next *groupRecord) { d.rebind(next.Account) },
	removed:    func(d *draft, old *groupRecord) { d.rebind(old.Account) },
}

// Groups returns the groups of an account in order of creation.
func (s *Store) Groups(account string) []Group {
	return list(groupKind.owned(s.view.Load(), account), func(r *groupRecord) (Group, bool) { return r.Group, true })
}

// GroupName returns the name of a group, "" if it does not exist.
func (s *Store) GroupName(id string) string {
	r, _ := groupKind.byID(s.view.Load(), id)
	return r.Name
}

// CreateGroup creates a group.
func (s *Store) CreateGroup(ctx context.Context, account string, fields GroupFields) (Group, error) {
	r := &groupRecord{Group: Group{
		ID: newID(prefixGroup, s.now()), Account: account, GroupFields: fields, CreatedAt: s.time(), CreatedBy: actor(ctx),
	}}
	return update(ctx, s, "creating the group", func(t *tx) (Group, error) {
		if _, err := t.account(account); err != nil {
			return Group{}, err
		}
		if n := groupKind.count(s.view.Load(), account); n >= maxGroups {
			return Group{}, Errorf(ErrLimit, "the account %q has %d groups, which is the maximum: remove one first", account, n)
		}
		if err := r.normalize(t, nil); err != nil {
			return Group{}, err
		}
		groupKind.create(t, r)
		t.confirmed()
		return r.Group, nil
	})
}

// EditGroup changes the fields of a group, given by id or name. When it returns without an error, running requests that
// their keys no longer allow have been ended.
func (s *Store) EditGroup(ctx context.Context, account, idOrName string, change func(*GroupFields) error,
) (Group, error) {
	return update(ctx, s, "changing the group", func(t *tx) (Group, error) {
		r, err := findGroup(t, account, idOrName)
		if err != nil {
			return Group{}, err
		}
		before := r.Group
		before.Members = slices.Clone(r.Members) // change may write into the list
		if err := change(&r.GroupFields); err != nil {
			return Group{}, err
		}
		if err := r.normalize(t, &before); err != nil {
			return Group{}, err
		}
		if r.ChangedBy = actor(ctx); r.Claim != before.Claim {
			r.ByClaim = nil
		}
		groupKind.save(t, r)
		t.confirmed()
		return r.Group, nil
	})
}

// RemoveGroup removes a group, given by id or name. Keys that were given to it are suspended.
func (s *Store) RemoveGroup(ctx context.Context, account, idOrName string) (Group, error) {
	return update(ctx, s, "removing the group", func(t *tx) (Group, error) {
		r, err := findGroup(t, account, idOrName)
		if err != nil {
			return Group{}, err
		}
		groupKind.remove(t, account, r.ID)
		t.confirmed()
		return r.Group, nil
	})
}

// findGroup reads a group of the account by id or name.
func findGroup(t *tx, account, idOrName string) (*groupRecord, error) {
	id := idOrName
	for _, g := range t.s.Groups(account) {
		if g.Name == idOrName {
			id = g.ID
		}
	}
	r := groupKind.load(t, account, id)
	if r == nil {
		return nil, Errorf(ErrNotFound, "group %.80q not found in the account %.40q: use a name from the list of groups",
			idOrName, account)
	}
	return r, nil
}

// normalize checks the fields that users set. before is nil for a new group.
func (r *groupRecord) normalize(t *tx, before *Group) error {
	if err := InField("name", checkName("group", prefixGroup, r.Name)); err != nil {
		return err
	}
	if before == nil || r.Name != before.Name {
		t.get(markNames(r.Account)) // as in checkNames
		t.mark(markNames(r.Account))
		for _, other := range groupKind.loadAll(t, r.Account) {
			if other.Name == r.Name {
				return InField("name", Errorf(ErrExists, "another group has the name %q: choose another name", r.Name))
			}
		}
	}
	parsed, err := scope.Parse(r.Scope)
	if err != nil {
		return InField("scope", Errorf(ErrInvalid, "%v", err))
	}
	r.Scope, r.scope = parsed.String(), parsed
	if r.MaxPriority = cmp.Or(r.MaxPriority, PriorityHigh); !slices.Contains(Priorities(), r.MaxPriority) {
		return Errorf(ErrInvalid, "the largest priority of the group is %.40q, but must be %s, %s or %s", r.MaxPriority,
			PriorityHigh, PriorityNormal, PriorityLow)
	}
	if r.MaxPriority == PriorityHigh {
		r.MaxPriority = ""
	}
	if len(r.Claim) > maxGroupClaim || !text.IsPrintable(r.Claim) {
		return InField("claim", Errorf(ErrInvalid, "the value of the claim must have at most %d printable bytes",
			maxGroupClaim))
	}
	if err := r.checkMembers(t.s, before); err != nil {
		return err
	}
	return checkUsageLimits(r.Limits)
}

// checkMembers checks that new members are users of the account. Removed users whose keys remain stay members: else
// these keys could use more than before.
func (r *groupRecord) checkMembers(s *Store, before *Group) error {
	if len(r.Members) > maxMembers {
		return InField("members", Errorf(ErrLimit, "the group has %d members, but the maximum is %d", len(r.Members),
			maxMembers))
	}
	for _, id := range r.Members {
		if !s.ownsKeys(r.Account, id) && (before == nil || !slices.Contains(before.Members, id)) {
			return InField("members", Errorf(ErrNotFound, "the user %.40q was not found in the account", id))
		}
	}
	if before != nil {
		for _, id := range before.Members {
			if _, former := s.FormerUser(r.Account, id); former {
				r.Members = append(r.Members, id)
			}
		}
	}
	slices.Sort(r.Members)
	r.Members = slices.Compact(r.Members)
	return nil
}

// ownsKeys reports whether a user of the account exists, or was removed while keys remain.
func (s *Store) ownsKeys(account, user string) bool {
	u, _ := s.User(user)
	_, former := s.FormerUser(account, user)
	return u.Account == account || former
}

// checkGroup finds the group of a key, given by id or name, and checks that the owner is in it.
func checkGroup(t *tx, r *keyRecord) error {
	if r.Group == "" {
		return nil
	}
	g, err := findGroup(t, r.Account, r.Group)
	if err != nil {
		return InField("group", err)
	}
	if r.Owner != "" && !g.Has(r.Owner) {
		return InField("group", Errorf(ErrConflict, "the owner of the key is not in the group %q: add the user to the "+
			"group, or choose another group or none", g.Name))
	}
	r.Group = g.ID
	return nil
}

// ClaimedMembers returns the members of a group by its claim, as of their last sign-ins with it.
func (s *Store) ClaimedMembers(g Group) []ClaimMember {
	v, members := s.view.Load(), slices.Clone(g.ByClaim)
	for i := range members {
		m := &members[i]
		u, _ := userKind.byID(v, m.User)
		for _, at := range u.Identities {
			if slices.Contains(at.Groups, g.Claim) && at.SignedInAt.After(m.AsOf) {
				m.AsOf = at.SignedInAt
			}
		}
	}
	return members
}

// setClaimGroups sets the groups of which a user is a member by the claim of an issuer to those with one of these
// values. Members by hand are not changed. It writes only groups whose members change: else sign-ins of many members
// at a time would conflict.
func setClaimGroups(t *tx, u User, values []string) {
	for _, known := range groupKind.loadAll(t, u.Account) {
		is := known.Claim != "" && slices.Contains(values, known.Claim)
		if !is && !known.hasByClaim(u.ID) {
			continue
		}
		g := groupKind.load(t, u.Account, known.ID)
		if g == nil || g.Claim != known.Claim {
			continue
		}
		was, before := g.hasByClaim(u.ID), len(g.ByClaim)
		if is != was { // to join bounds a key, too
			t.confirmed()
		}
		old := t.s.now().Add(-SessionLife) // other gateways may have added a new user just now
		g.ByClaim = slices.DeleteFunc(g.ByClaim, func(m ClaimMember) bool {
			if m.User == u.ID {
				return !is
			}
			return m.AsOf.Before(old) && !t.s.ownsKeys(u.Account, m.User)
		})
		if is && !was {
			g.ByClaim = append(g.ByClaim, ClaimMember{u.ID, t.s.time()})
		}
		if is == was && len(g.ByClaim) == before {
			continue
		}
		if len(g.ByClaim) > maxMembers && t.err == nil {
			t.err = Errorf(ErrLimit, "the group %q has %d members by the claim, which is the maximum: ask an admin to change "+
				"its value of the claim", g.Name, maxMembers)
		}
		groupKind.save(t, g)
	}
}
