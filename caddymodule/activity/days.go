package activity

import (
	"context"
	"fmt"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

const daySeconds = 24 * 60 * 60

// dayOf returns the number of days since 1970 in UTC.
func dayOf(t time.Time) int64 {
	seconds := t.Unix()
	if seconds < 0 {
		return 0
	}
	return seconds / daySeconds
}

// dayName returns a day in the format of records.
func dayName(day int64) string {
	return time.Unix(day*daySeconds, 0).UTC().Format(time.DateOnly)
}

// Days returns the sums of the last n days, at most 366, ending with today. Days
// without requests have zeros.
func (l *Log) Days(ctx context.Context, account string, n int) ([]store.UsageDay, error) {
	n = min(max(n, 1), maxDays)
	first := dayOf(l.now()) - int64(n) + 1
	days := make([]store.UsageDay, n)
	index := make(map[string]int, n)
	for i := range days {
		days[i] = store.UsageDay{Account: account, Day: dayName(first + int64(i))}
		index[days[i].Day] = i
	}
	known, err := l.known(ctx, account, days[0].Day)
	if err != nil {
		return nil, fmt.Errorf("reading the usage by day: %w", err)
	}
	for _, k := range known {
		if i, ok := index[k.Day]; ok {
			days[i].Add(k)
		}
	}
	return days, nil
}

// known returns the saved and the unsaved sums. A day may occur in both.
func (l *Log) known(ctx context.Context, account, from string) ([]store.UsageDay, error) {
	l.saving.Lock()
	defer l.saving.Unlock()
	known, err := l.store.Usage(ctx, account, from)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.accounts[account]; a != nil {
		for _, s := range a.unsaved {
			known = append(known, s.UsageDay)
		}
	}
	return known, nil
}
