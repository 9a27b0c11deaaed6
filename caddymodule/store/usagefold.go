package store

import (
	"context"
	"errors"
	"time"

	"github.com/postern-dev/postern/connector/wait"
)

const (
	// keepDays is how long usage is kept by day, at least: a month is folded when all of its
	// days are older.
	keepDays = 92
	// keepMonths is how long usage is kept by month.
	keepMonths = 60
	// keepHours is how long usage is also kept by hour.
	keepHours = 48
	// foldBatch is the maximum number of rows of a transaction that folds them. Each is
	// deleted, and added to another one.
	foldBatch = MaxTxnOps / 2
	// foldInterval is the pause between two such transactions, for other writers.
	foldInterval = time.Second
)

// firstUnfolded returns the first month that is not yet folded, like 2026-08.
func (s *Store) firstUnfolded() string {
	return s.now().UTC().AddDate(0, 0, -keepDays).Format(monthOnly)
}

// dropHours deletes the rows of hours that are too old.
func (s *Store) dropHours(ctx context.Context) error {
	if !s.Leads() {
		return nil
	}
	oldest := s.now().UTC().Add(-keepHours * time.Hour).Format(HourOnly)
	every := func(Item) bool { return true }
	for _, a := range s.Accounts() {
		dir := dirHours + a.ID + "/"
		err := s.inBatches(ctx, Span{Start: dir, End: dir + oldest}, MaxTxnOps, every, func(batch []Item) error {
			t := new(tx)
			for _, item := range batch {
				t.delete(item.Key)
			}
			_, err := s.shared.Txn(ctx, t.Txn)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// foldUsage replaces the rows of days in old months by one row for each month, key and
// deployment, and removes the months that are too old. Once all rows are folded, it does
// nothing until the next month.
func (s *Store) foldUsage(ctx context.Context) error {
	month := s.firstUnfolded()
	if !s.Leads() || s.folded == month {
		return nil
	}
	first := s.now().UTC()
	oldest := time.Date(first.Year(), first.Month()-keepMonths, 1, 0, 0, 0, 0, time.UTC).Format(monthOnly)
	unfolded := func(item Item) bool {
		r, _, ok := parseUsagePath(item.Key)
		return ok && (len(r.Day) == len(time.DateOnly) || r.Day < oldest)
	}
	complete := true
	for _, a := range s.Accounts() {
		dir := dirUsage + a.ID + "/"
		err := s.inBatches(ctx, Span{Start: dir, End: dir + month}, foldBatch, unfolded, func(batch []Item) error {
			done, err := s.fold(ctx, batch, oldest)
			complete = complete && done
			return err
		})
		if err != nil {
			return err
		}
	}
	if complete {
		s.folded = month
	}
	return nil
}

// inBatches calls write with the items of a span that take accepts, n at a time, and pauses after
// each call.
func (s *Store) inBatches(
	ctx context.Context, span Span, n int, take func(Item) bool, write func([]Item) error,
) error {
	errFull := errors.New("the batch is full")
	for full := true; full; {
		var batch []Item
		_, err := s.shared.Each(ctx, span, func(item Item) error {
			if take(item) {
				batch = append(batch, item)
			}
			if len(batch) == n {
				span.Start = item.Key + "\x00"
				return errFull
			}
			return nil
		})
		full = errors.Is(err, errFull)
		switch {
		case err != nil && !full:
			return err
		case len(batch) == 0:
			return nil
		}
		if err := write(batch); err != nil {
			return err
		}
		if err := wait.For(ctx, foldInterval); err != nil {
			return err
		}
	}
	return nil
}

// fold adds rows to those of their months, and deletes them. If one has changed meanwhile, it
// changes nothing and returns false.
func (s *Store) fold(ctx context.Context, batch []Item, oldest string) (done bool, err error) {
	t := &tx{ctx: ctx, s: s}
	months := make(map[string]*usageRecord)
	for _, item := range batch {
		t.If = append(t.If, Compare{Key: item.Key, ModRevision: item.ModRevision})
		t.delete(item.Key)
		r, err := decodeUsage(item)
		if err != nil {
			return false, err
		}
		r.Day = r.Day[:len(monthOnly)]
		if r.Day < oldest {
			continue
		}
		path := r.path("")
		month := months[path]
		if month == nil {
			month = new(usageRecord)
			t.read(path, month)
			months[path] = month
		}
		month.KeyName = r.KeyName
		month.Add(r.Usage)
	}
	for path, month := range months {
		t.put(path, month)
	}
	if t.err != nil {
		return false, t.err
	}
	result, err := s.shared.Txn(ctx, t.Txn)
	return result.Succeeded, err
}
