package manage

import (
	"context"
	"slices"
	"time"

	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/scope"
	"github.com/postern-dev/postern/caddymodule/store"
)

// Group is a listed group. Members of the account see of its members only themselves.
type Group struct {
	store.Group
	// MemberNames are the names of all members, also of those by the claim.
	MemberNames []string `json:"member_names" column:"MEMBERS"`
	// Keys counts the keys that count for the group and are not revoked.
	Keys          int   `json:"keys" column:"KEYS"`
	TokensToday   int64 `json:"tokens_today" column:"TODAY"` // of the requests of these keys since midnight in UTC
	TokensMonth   int64 `json:"tokens_month" column:"MONTH"` // since the month began in UTC
	RequestsToday int64 `json:"requests_today"`              // that a model got
	RequestsMonth int64 `json:"requests_month"`
	// For the console: the states of the limits per day and month, the ids of the keys, and ByClaim with names.
	States  []limits.State  `json:"-"`
	KeyIDs  []string        `json:"-"`
	Claimed []ClaimedMember `json:"-"`
}

// ClaimedMember is a member by the claim of an issuer.
type ClaimedMember struct {
	Name string
	AsOf time.Time
}

// Groups lists the groups that the caller may see: members of the account see their own.
func (s *Service) Groups(ctx context.Context) ([]Group, error) {
	groups, err := s.GroupsWithoutUse(ctx)
	if err != nil {
		return nil, err
	}
	return groups, s.addUse(ctx, groups)
}

// GroupsWithoutUse is Groups without what their keys have used.
func (s *Service) GroupsWithoutUse(ctx context.Context) ([]Group, error) {
	account, err := s.account(ctx)
	if err != nil {
		return nil, err
	}
	own, keys, groups := s.owner(ctx), s.keysByGroup(account), []Group{}
	for _, g := range s.store.Groups(account) {
		if own == "" || g.Has(own) {
			groups = append(groups, s.groupOf(g, own, keys))
		}
	}
	return groups, nil
}

// keysByGroup returns the ids of the keys of an account that are not revoked, by the ids of the groups that they count
// for.
func (s *Service) keysByGroup(account string) map[string][]string {
	keys := make(map[string][]string)
	for _, k := range s.store.Keys(account) {
		for _, of := range s.store.GroupsOf(k.ID) {
			if k.RevokedAt == nil {
				keys[of.ID] = append(keys[of.ID], k.ID)
			}
		}
	}
	return keys
}

// Group returns a group that the caller may see, by id or name.
func (s *Service) Group(ctx context.Context, idOrName string) (Group, error) {
	groups, err := s.Groups(ctx)
	if err != nil {
		return Group{}, err
	}
	g, ok := find(groups, func(g Group) bool { return g.ID == idOrName || g.Name == idOrName })
	if !ok {
		return Group{}, faultf(store.ErrNotFound, "group %.80q not found; `caddy gateway group list` shows all", idOrName)
	}
	return g, nil
}

// CreateGroup creates a group. edit sets its fields, with members by id or name.
func (s *Service) CreateGroup(ctx context.Context, edit func(*store.GroupFields) error) (Group, error) {
	return change(ctx, s, func(account string) (Group, write, error) {
		f := store.GroupFields{Scope: "*"}
		if err := s.editGroup(account, &f, edit); err != nil {
			return Group{}, write{}, err
		}
		g, err := s.store.CreateGroup(ctx, account, f)
		more := changed(values{"name": g.Name}, valuesOf(g.GroupFields))
		return s.groupOf(g, "", s.keysByGroup(account)), write{"group.create", g.ID, g.Name, more}, err
	})
}

// EditGroup changes the fields of a group, by id or name. When it returns, requests that its keys no longer allow
// fail, and running ones are ended.
func (s *Service) EditGroup(ctx context.Context, idOrName string, edit func(*store.GroupFields) error) (Group, error) {
	return change(ctx, s, func(account string) (Group, write, error) {
		var before values
		g, err := s.store.EditGroup(ctx, account, idOrName, func(f *store.GroupFields) error {
			before = valuesOf(*f)
			return s.editGroup(account, f, edit)
		})
		more := changed(before, valuesOf(g.GroupFields))
		return s.groupOf(g, "", s.keysByGroup(account)), write{"group.edit", g.ID, g.Name, more}, err
	})
}

// editGroup calls edit, and replaces the names of new members by their ids.
func (s *Service) editGroup(account string, f *store.GroupFields, edit func(*store.GroupFields) error) (err error) {
	before := slices.Clone(f.Members) // in order; users who were removed may be among them
	if err := edit(f); err != nil {
		return err
	}
	f.Members = slices.Clone(f.Members)
	for i, m := range f.Members {
		if _, was := slices.BinarySearch(before, m); was {
			continue
		}
		if f.Members[i], err = s.ownerID(account, m); err != nil {
			return err
		}
	}
	return nil
}

// RemoveGroup removes a group, by id or name. Keys that were given to it are suspended.
func (s *Service) RemoveGroup(ctx context.Context, idOrName string) (Group, error) {
	return change(ctx, s, func(account string) (Group, write, error) {
		g, err := s.store.RemoveGroup(ctx, account, idOrName)
		return s.groupOf(g, "", s.keysByGroup(account)), write{"group.remove", g.ID, g.Name, nil}, err
	})
}

// groupOf adds to a record what is known of its members and keys. If own is not "", the caller sees only this member.
func (s *Service) groupOf(g store.Group, own string, keys map[string][]string) Group {
	if g.ByClaim = s.store.ClaimedMembers(g); own != "" {
		g.Members = slices.DeleteFunc(slices.Clone(g.Members), func(id string) bool { return id != own })
		g.ByClaim = slices.DeleteFunc(g.ByClaim, func(m store.ClaimMember) bool { return m.User != own })
	}
	v := Group{Group: g, MemberNames: []string{}, KeyIDs: keys[g.ID], Keys: len(keys[g.ID])}
	ids := slices.Clone(g.Members)
	for _, m := range g.ByClaim {
		ids, v.Claimed = append(ids, m.User), append(v.Claimed, ClaimedMember{s.ownerName(g.Account, m.User), m.AsOf})
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		if name := s.ownerName(g.Account, id); name != "" {
			v.MemberNames = append(v.MemberNames, name)
		}
	}
	slices.Sort(v.MemberNames)
	return v
}

// addUse adds what the keys of groups of an account have used.
func (s *Service) addUse(ctx context.Context, groups []Group) error {
	if len(groups) == 0 {
		return nil
	}
	if err := s.usageInReach(); err != nil {
		return err
	}
	now := s.now().UTC()
	from, today := monthOf(now).Format(time.DateOnly), now.Format(time.DateOnly)
	days, months := map[string]limits.Sums{}, map[string]limits.Sums{}
	add := func(to map[string]limits.Sums, id string, more limits.Sums) {
		sums := to[id]
		sums.Add(more)
		to[id] = sums
	}
	err := s.activity.EachUsage(ctx, groups[0].Account, "", from, today, func(r store.UsageRow) error {
		for _, of := range s.store.GroupsOf(r.Key) {
			if add(months, of.ID, r.Sums()); r.Day == today {
				add(days, of.ID, r.Sums())
			}
		}
		return nil
	})
	for i := range groups {
		g := &groups[i]
		day, month := days[g.ID], months[g.ID]
		g.TokensToday, g.RequestsToday = day.Tokens, day.Requests
		g.TokensMonth, g.RequestsMonth = month.Tokens, month.Requests
		g.States = quotaStates(limits.Subject{Of: limits.OfGroup, ID: g.ID}, g.Limits, now, day, month)
	}
	return err
}

// KeyScope returns what a key of the account with these fields may be used for.
func (s *Service) KeyScope(ctx context.Context, f store.KeyFields) (scope.Scope, error) {
	account, err := s.account(ctx)
	if err != nil {
		return scope.Scope{}, err
	}
	allowed, err := s.store.ScopeOf(account, f)
	if err != nil {
		return allowed, badRequest("%v", err)
	}
	return allowed, nil
}

// KeyModels lists the deployments that a key of the account with these fields may be used for now, by name.
func (s *Service) KeyModels(ctx context.Context, f store.KeyFields) ([]Deployment, error) {
	allowed, err := s.KeyScope(ctx, f)
	if err != nil {
		return nil, err
	}
	deployments, err := s.Deployments(ctx)
	return slices.DeleteFunc(deployments, func(d Deployment) bool { return !allowed.Allows(d.Name) }), err
}
