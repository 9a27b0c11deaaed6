package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

type usageRecord struct {
	header
	UsageDay
}

// UsageDay is the usage of an account on one day.
type UsageDay struct {
	Account      string `json:"account"`
	Day          string `json:"day"` // like 2026-11-21, in UTC
	Requests     int64  `json:"requests"`
	Errors       int64  `json:"errors"`
	InputTokens  int64  `json:"input_tokens"`
	OutputTokens int64  `json:"output_tokens"`
}

// Add adds the numbers of another day.
func (d *UsageDay) Add(o UsageDay) {
	d.Requests += o.Requests
	d.Errors += o.Errors
	d.InputTokens += o.InputTokens
	d.OutputTokens += o.OutputTokens
}

// SaveUsage stores the usage of accounts through this gateway on some days, from the
// beginning of the day. It replaces what was stored, so a write with an unknown outcome can
// be repeated. days must not contain duplicates. Days of removed accounts are ignored.
func (s *Store) SaveUsage(ctx context.Context, days []UsageDay) error {
	t := new(tx)
	for _, d := range days {
		if err := checkDay(d.Day); err != nil {
			return err
		}
		if _, ok := s.Account(d.Account); ok {
			t.put(s.usagePath(d.Account, d.Day), &usageRecord{UsageDay: d})
		}
	}
	if err := s.putLocal(ctx, t); err != nil {
		return fmt.Errorf("saving the usage: %w", err)
	}
	return nil
}

// OwnUsage returns the usage of an account through this gateway on a day, as last saved.
func (s *Store) OwnUsage(ctx context.Context, account, day string) (UsageDay, error) {
	none := UsageDay{Account: account, Day: day}
	if err := checkDay(day); err != nil {
		return none, err
	}
	if _, ok := s.Account(account); !ok {
		return none, nil
	}
	ctx, cancel := s.limited(ctx)
	defer cancel()
	path := s.usagePath(account, day)
	item, err := s.local.Get(ctx, path)
	if err == nil && !item.Exists() && s.local != s.kv { // published long ago
		item, err = s.kv.Get(ctx, path)
	}
	if err != nil || !item.Exists() {
		return none, err
	}
	var r usageRecord
	err = decode(item, &r)
	return r.UsageDay, err
}

// usagePath returns the key of this gateway's usage of an account on a day.
func (s *Store) usagePath(account, day string) string {
	return dirUsage + account + "/" + day + "/" + s.edge
}

func checkDay(day string) error {
	if _, err := time.Parse(time.DateOnly, day); err != nil {
		return Errorf(ErrInvalid, "%.40q is not a day like 2026-11-21", day)
	}
	return nil
}

// Usage returns the days of an account with usage, from fromDay on, in order. Each is the
// sum over all gateways. newer are days that other gateways have not published, by gateway.
func (s *Store) Usage(ctx context.Context, account, fromDay string, newer map[string][]UsageDay) ([]UsageDay, error) {
	if err := checkDay(fromDay); err != nil {
		return nil, err
	}
	if !checkAccount(account) {
		return nil, errNoAccount(account)
	}
	span := Prefix(dirUsage + account + "/")
	span.Start += fromDay
	rows, err := s.usageRows(ctx, span)
	if err != nil {
		return nil, fmt.Errorf("reading the usage: %w", err)
	}
	for gateway, days := range newer {
		for _, d := range days {
			if d.Day >= fromDay {
				rows[dirUsage+account+"/"+d.Day+"/"+gateway] = d
			}
		}
	}
	var days []UsageDay
	for _, path := range slices.Sorted(maps.Keys(rows)) {
		d := rows[path]
		if last := len(days) - 1; last >= 0 && days[last].Day == d.Day {
			days[last].Add(d)
		} else {
			days = append(days, d)
		}
	}
	return days, nil
}

// usageRows returns the usage of all gateways by key. That of this gateway is what it has
// saved, which it may not have published.
func (s *Store) usageRows(ctx context.Context, span Span) (map[string]UsageDay, error) {
	ctx, cancel := s.limited(ctx)
	defer cancel()
	rows := make(map[string]UsageDay)
	for _, kv := range []KV{s.kv, s.local} {
		_, err := kv.Each(ctx, span, func(item Item) error {
			var r usageRecord
			err := decode(item, &r)
			rows[item.Key] = r.UsageDay
			return err
		})
		if err != nil || s.local == s.kv {
			return rows, err
		}
	}
	return rows, nil
}
