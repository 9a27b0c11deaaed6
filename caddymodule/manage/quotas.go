package manage

import (
	"context"
	"slices"
	"time"

	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/store"
)

// UsedQuota is a limit per day or month of which at least 80 percent are used.
type UsedQuota struct {
	limits.Crossing
	Name string // of the key or the group; "" for a limit of the account
}

// UsedQuotas returns the limits per day and month of which at least 80 percent are used: those of
// valid keys and groups that the caller may see, and those of the account if the caller may see all of its keys.
func (s *Service) UsedQuotas(ctx context.Context) (used []UsedQuota, err error) {
	account, err := s.account(ctx)
	if err != nil {
		return nil, err
	}
	keys, err := s.Keys(ctx)
	if err != nil {
		return nil, err
	}
	own, limited := s.owner(ctx), []store.Key(nil)
	if own == "" {
		a, _ := s.store.Account(account)
		limited = append(limited, store.Key{KeyFields: store.KeyFields{Limits: a.Limits.UsageLimits}})
	}
	for _, k := range keys {
		if k.State == store.KeyValid {
			limited = append(limited, k.Key)
		}
	}
	limited = slices.DeleteFunc(limited, func(k store.Key) bool { return !k.Limits.HasQuota() })
	add := func(name string, states []limits.State) {
		for _, state := range states {
			if percent := state.Percent(); percent > 0 {
				used = append(used, UsedQuota{limits.Crossing{State: state, Percent: percent}, name})
			}
		}
	}
	if len(limited) > 0 {
		uses, err := s.KeyUses(ctx, limited)
		if err != nil {
			return nil, err
		}
		for _, k := range limited {
			add(k.Name, uses[k.ID].States)
		}
	}
	var groups []Group
	for _, g := range s.store.Groups(account) {
		if g.Limits.HasQuota() && (own == "" || g.Has(own)) {
			groups = append(groups, Group{Group: g})
		}
	}
	err = s.addUse(ctx, groups)
	for _, g := range groups {
		add(g.Name, g.States)
	}
	return used, err
}

// KeyUse is what a key has used today, and the states of its limits per day and month.
type KeyUse struct {
	store.Usage
	States []limits.State
}

// KeyUses returns the use of keys by their ids. The id "" stands for all keys together.
func (s *Service) KeyUses(ctx context.Context, keys []store.Key) (map[string]KeyUse, error) {
	now := s.now().UTC()
	day, err := s.sums(ctx, now)
	if err != nil {
		return nil, err
	}
	var month map[string]store.Usage
	if slices.ContainsFunc(keys, func(k store.Key) bool { return k.Limits.TokensPerMonth > 0 }) { // many more rows
		if month, err = s.sums(ctx, monthOf(now)); err != nil {
			return nil, err
		}
	}
	uses := make(map[string]KeyUse, len(keys))
	for _, k := range keys {
		of := limits.Subject{Of: limits.OfKey, ID: k.ID}
		uses[k.ID] = KeyUse{day[k.ID], quotaStates(of, k.Limits, now, day[k.ID].Sums(), month[k.ID].Sums())}
	}
	return uses, nil
}

// monthOf returns the time at which a month in UTC began.
func monthOf(now time.Time) time.Time {
	return time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
}

// quotaStates returns the states of limits per day and month.
func quotaStates(of limits.Subject, l limits.UsageLimits, now time.Time, day, month limits.Sums) []limits.State {
	level := limits.NewLevel(of, now)
	level.Set(l, 1)
	level.Load(now, day, month)
	return slices.DeleteFunc(level.AppendStates(nil, now), limits.State.PerMinute)
}

// sums returns what keys have used since a day, by their ids, and all keys together with the id "".
func (s *Service) sums(ctx context.Context, from time.Time) (map[string]store.Usage, error) {
	rows, err := s.Usage(ctx, Usage{From: from.Format(time.DateOnly), By: "key"})
	sums := make(map[string]store.Usage)
	var all store.Usage
	for _, row := range rows {
		sums[row.KeyID] = row.Usage
		all.Add(row.Usage)
	}
	sums[""] = all
	return sums, err
}
