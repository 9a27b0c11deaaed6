package store

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// UsageDay counts what an account used on one day.
type UsageDay struct {
	Account      string `json:"account"`
	Day          string `json:"day"` // like 2026-11-21, in UTC
	Requests     int64  `json:"requests"`
	Errors       int64  `json:"errors"`
	InputTokens  int64  `json:"input_tokens"`
	OutputTokens int64  `json:"output_tokens"`
}

func (d UsageDay) plus(o UsageDay) UsageDay {
	d.Requests += o.Requests
	d.Errors += o.Errors
	d.InputTokens += o.InputTokens
	d.OutputTokens += o.OutputTokens
	return d
}

// maxRecent bounds what SaveRecent takes, so that its record, with the data in
// base64, is not too long for the KV.
const maxRecent = MaxValue/4*3 - 1024

// maxUsageDays is how many days one transaction changes. Each needs a compare
// for itself, and may need one for its account.
const maxUsageDays = MaxTxnOps / 2

// AddUsage adds to what the accounts have used. Days of accounts that are gone
// are left out. All of it is added or, when there is an error, nothing, as
// long as there are no more than 64 different days.
func (s *Store) AddUsage(ctx context.Context, days []UsageDay) error {
	type place struct{ account, day string }
	sums := make(map[place]UsageDay, len(days))
	var order []place
	for _, d := range days {
		if err := checkDay(d.Day); err != nil {
			return err
		}
		p := place{d.Account, d.Day}
		sum, ok := sums[p]
		if !ok {
			order = append(order, p)
			sum = UsageDay{Account: d.Account, Day: d.Day}
		}
		sums[p] = sum.plus(d)
	}
	for chunk := range slices.Chunk(order, maxUsageDays) {
		part := make([]UsageDay, len(chunk))
		for i, p := range chunk {
			part[i] = sums[p]
		}
		if err := s.update(ctx, func() (Txn, error) { return s.buildUsage(ctx, part) }); err != nil {
			return fmt.Errorf("adding to the usage: %w", err)
		}
	}
	return nil
}

func checkDay(day string) error {
	if _, err := time.Parse(time.DateOnly, day); err != nil {
		return fail(ErrInvalid, "%.40q is not a day like 2026-11-21", day)
	}
	return nil
}

func (s *Store) buildUsage(ctx context.Context, days []UsageDay) (Txn, error) {
	var t Txn
	var puts []put
	owners := make(map[string]bool, len(days)) // whether they exist
	for _, d := range days {
		exists, seen := owners[d.Account]
		if !seen && checkAccount(d.Account) {
			owner, err := s.kv.Get(ctx, accountPath(d.Account))
			if err != nil {
				return Txn{}, err
			}
			exists = owner.Exists()
			t.If = append(t.If, unchanged(owner))
		}
		owners[d.Account] = exists
		if !exists {
			continue
		}
		item, err := s.kv.Get(ctx, usagePath(d.Account, d.Day))
		if err != nil {
			return Txn{}, err
		}
		if item.Exists() {
			before, err := decodeUsage(item)
			if err != nil {
				return Txn{}, err
			}
			d = before.plus(d)
		}
		t.If = append(t.If, unchanged(item))
		puts = append(puts, put{item.Key, usageRecord{version{recordVersion}, d}})
	}
	return t.put(puts...)
}

// Usage returns the days of an account on which something was used, from
// fromDay on, in their order.
func (s *Store) Usage(ctx context.Context, account, fromDay string) ([]UsageDay, error) {
	if err := checkDay(fromDay); err != nil {
		return nil, err
	}
	if !checkAccount(account) {
		return nil, fail(ErrNotFound, "there is no account %.40q", account)
	}
	span := Prefix(usagePath(account, ""))
	span.Start = usagePath(account, fromDay)
	snap, err := s.kv.Range(ctx, span)
	if err != nil {
		return nil, fmt.Errorf("reading the usage: %w", err)
	}
	var days []UsageDay
	for _, item := range snap.Items {
		d, err := decodeUsage(item)
		if err != nil {
			return nil, fmt.Errorf("reading the usage: %w", err)
		}
		days = append(days, d)
	}
	return days, nil
}

// SaveRecent keeps bytes that tell of the latest requests of an account, in
// place of those before.
func (s *Store) SaveRecent(ctx context.Context, account string, data []byte) error {
	if len(data) > maxRecent {
		return fail(ErrInvalid, "the latest requests take %d bytes, more than %d", len(data), maxRecent)
	}
	err := s.update(ctx, func() (Txn, error) {
		owner, err := s.account(ctx, account)
		if err != nil {
			return Txn{}, err
		}
		t := Txn{If: []Compare{unchanged(owner)}}
		return t.put(put{recentPath(account), recentRecord{version{recordVersion}, data}})
	})
	if err != nil {
		return fmt.Errorf("saving the latest requests: %w", err)
	}
	return nil
}

// LoadRecent returns what SaveRecent has kept, or nil.
func (s *Store) LoadRecent(ctx context.Context, account string) ([]byte, error) {
	if !checkAccount(account) {
		return nil, fail(ErrNotFound, "there is no account %.40q", account)
	}
	item, err := s.kv.Get(ctx, recentPath(account))
	if err != nil || !item.Exists() {
		return nil, err
	}
	var r recentRecord
	if err := decode(item, &r); err != nil {
		return nil, fmt.Errorf("reading the latest requests: %w", err)
	}
	return r.Data, nil
}
