package store

import (
	"context"
	"fmt"
	"slices"
	"time"
)

type usageRecord struct {
	header
	UsageDay
}

type recentRecord struct {
	header
	Data []byte `json:"data"`
}

func usagePath(account, day string) string { return dirUsage + account + "/" + day }

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

// maxRecent bounds the data of SaveRecent, so that its record, with the data in base64, fits
// into a KV value.
const maxRecent = MaxValue/4*3 - 1024

// maxUsageDays bounds the days in one transaction. Each needs a compare, and may need
// another one for its account.
const maxUsageDays = MaxTxnOps / 2

// AddUsage adds to the usage of accounts. days must not contain duplicates. Days of removed
// accounts are ignored. Up to 64 days are added atomically.
func (s *Store) AddUsage(ctx context.Context, days []UsageDay) error {
	for _, d := range days {
		if err := checkDay(d.Day); err != nil {
			return err
		}
	}
	for chunk := range slices.Chunk(days, maxUsageDays) {
		err := s.update(ctx, "adding to the usage", func(t *tx) error {
			for _, d := range chunk {
				if _, err := t.account(d.Account); err != nil {
					continue
				}
				path, r := usagePath(d.Account, d.Day), &usageRecord{UsageDay: UsageDay{Account: d.Account, Day: d.Day}}
				t.read(path, r)
				r.Add(d)
				t.put(path, r)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func checkDay(day string) error {
	if _, err := time.Parse(time.DateOnly, day); err != nil {
		return Errorf(ErrInvalid, "%.40q is not a day like 2026-11-21", day)
	}
	return nil
}

// Usage returns the days of an account with usage, from fromDay on, in order.
func (s *Store) Usage(ctx context.Context, account, fromDay string) ([]UsageDay, error) {
	if err := checkDay(fromDay); err != nil {
		return nil, err
	}
	if !checkAccount(account) {
		return nil, Errorf(ErrNotFound, "unknown account %.40q", account)
	}
	span := Prefix(usagePath(account, ""))
	span.Start = usagePath(account, fromDay)
	snap, err := s.kv.Range(ctx, span)
	if err != nil {
		return nil, fmt.Errorf("reading the usage: %w", err)
	}
	var days []UsageDay
	for _, item := range snap.Items {
		var r usageRecord
		if err := decode(item, &r); err != nil {
			return nil, fmt.Errorf("reading the usage: %w", err)
		}
		days = append(days, r.UsageDay)
	}
	return days, nil
}

// SaveRecent stores data about the latest requests of an account, replacing older data.
func (s *Store) SaveRecent(ctx context.Context, account string, data []byte) error {
	if len(data) > maxRecent {
		return Errorf(ErrInvalid, "the latest requests take %d bytes, more than %d", len(data), maxRecent)
	}
	return s.update(ctx, "saving the latest requests", func(t *tx) error {
		if _, err := t.account(account); err != nil {
			return err
		}
		t.put(dirRecent+account, &recentRecord{Data: data})
		return nil
	})
}

// LoadRecent returns the data stored by SaveRecent, or nil.
func (s *Store) LoadRecent(ctx context.Context, account string) ([]byte, error) {
	if !checkAccount(account) {
		return nil, Errorf(ErrNotFound, "unknown account %.40q", account)
	}
	var r recentRecord
	t := &tx{ctx: ctx, s: s}
	t.read(dirRecent+account, &r)
	return r.Data, t.err
}
