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
	l.saving.Lock()
	defer l.saving.Unlock()
	saved, err := l.store.Usage(ctx, account, dayName(first))
	if err != nil {
		return nil, fmt.Errorf("reading the usage by day: %w", err)
	}
	sums := make(map[string]store.UsageDay, len(saved))
	for _, d := range saved {
		sums[d.Day] = d
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	days := make([]store.UsageDay, n)
	for i := range days {
		day := first + int64(i)
		days[i] = store.UsageDay{Account: account, Day: dayName(day)}
		days[i].Add(sums[days[i].Day])
		if a := l.accounts[account]; a != nil {
			days[i].Add(a.unsaved[day])
		}
	}
	return days, nil
}
