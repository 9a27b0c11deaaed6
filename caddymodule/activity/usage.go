package activity

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/wait"
)

// rowKey identifies a row of this gateway's usage.
type rowKey struct {
	hour                     int64 // since 1970 in UTC; the first one of a day
	daily                    bool  // the row is that of the day
	account, key, deployment string
}

// row is a row of this gateway's usage. It is dropped when it is idle, and read from the store again
// for the next request.
type row struct {
	keyName string
	saved   *store.Usage // nil: not yet read from the store
	unsaved store.Usage  // requests since
}

// storeRow returns the row of the store with this key, without sums.
func (k rowKey) storeRow(keyName string) store.UsageRow {
	layout := store.HourOnly
	if k.daily {
		layout = time.DateOnly
	}
	day := time.Unix(k.hour*hourSeconds, 0).UTC().Format(layout)
	return store.UsageRow{Account: k.account, Day: day, Key: k.key, Deployment: k.deployment, KeyName: keyName}
}

// count adds a request to the rows of the day and the hour in which it ended, as limits do. The caller
// holds l.mu.
func (l *Log) count(account string, r *Request) {
	ended := r.Time.Add(time.Duration(r.DurationMillis * float64(time.Millisecond)))
	hour, usage := max(0, ended.Unix()/hourSeconds), r.usage()
	for _, k := range [...]rowKey{
		{hour - hour%24, true, account, r.KeyID, r.Deployment},
		{hour, false, account, r.KeyID, r.Deployment},
	} {
		counted := l.usage[k]
		if counted == nil {
			counted = new(row)
			l.usage[k] = counted
		}
		counted.keyName = r.KeyName
		if k.daily && counted.unsaved.Requests == 0 {
			l.refresh(k)
		}
		counted.unsaved.Add(usage)
	}
}

// refresh enqueues a row for saveQuotas. The caller holds l.mu.
func (l *Log) refresh(k rowKey) {
	if l.fresh = append(l.fresh, k); len(l.fresh) > 1 {
		return
	}
	wait.Wake(l.counted, struct{}{})
}

// usage returns the sums of one request.
func (r *Request) usage() store.Usage {
	u := store.Usage{
		Requests: 1, InputTokens: int64(r.InputTokens), CachedTokens: int64(r.CachedTokens),
		OutputTokens: int64(r.OutputTokens), ReasoningTokens: int64(r.ReasoningTokens), BusyMillis: int64(r.BusyMillis),
	}
	switch r.ErrorClass {
	case CallerError:
		u.CallerErrors = 1
	case PolicyError:
		u.PolicyErrors = 1
	case GatewayError:
		u.GatewayErrors = 1
	case UpstreamError:
		u.UpstreamErrors = 1
	}
	if r.Estimated {
		u.EstimatedRequests, u.EstimatedTokens = 1, u.InputTokens+u.OutputTokens
	}
	if r.BusyMillis > 0 {
		u.ModelRequests = 1
	}
	if r.FirstTokenMillis > 0 {
		u.FirstTokens, u.FirstTokenMillis = 1, int64(r.FirstTokenMillis)
		u.FirstTokenTimes.Count(r.FirstTokenMillis, store.Millis)
	}
	if r.BusyMillis > 0 || r.WaitMillis > 0 {
		u.Waits.Count(r.WaitMillis, store.Millis)
	}
	if r.TokensPerSecond > 0 {
		u.Speeds.Count(r.TokensPerSecond, store.TokensPerSecond)
	}
	return u
}

// saveUsage saves the rows that have changed, and drops those that have not. It cannot be
// canceled, so that closing the log saves everything.
func (l *Log) saveUsage() error {
	l.saving.Lock()
	defer l.saving.Unlock()
	unsaved := make(map[rowKey]store.Usage)
	l.mu.Lock()
	for k, r := range l.usage {
		if r.unsaved.Requests == 0 {
			delete(l.usage, k)
			continue
		}
		unsaved[k], r.unsaved = r.unsaved, store.Usage{}
	}
	l.mu.Unlock()
	return l.save(unsaved)
}

// saveQuotas saves the rows that quotas are counted from after a restart: the days of keys and accounts
// with quotas. Hours are statistics.
func (l *Log) saveQuotas() error {
	l.mu.Lock()
	fresh := l.fresh
	l.fresh = nil
	l.mu.Unlock()
	fresh = slices.DeleteFunc(fresh, func(k rowKey) bool {
		ofAccount, ofKey := l.store.UsageLimits(k.account, k.key)
		return !ofAccount.HasQuota() && !ofKey.HasQuota()
	})
	if len(fresh) == 0 {
		return nil
	}
	l.saving.Lock()
	defer l.saving.Unlock()
	unsaved := make(map[rowKey]store.Usage, len(fresh))
	l.mu.Lock()
	for _, k := range fresh {
		if r := l.usage[k]; r != nil && r.unsaved.Requests > 0 {
			unsaved[k], r.unsaved = r.unsaved, store.Usage{}
		}
	}
	l.mu.Unlock()
	return l.save(unsaved)
}

// save calls saveRows. Rows that are not saved stay unsaved, even after a panic. The caller holds
// l.saving.
func (l *Log) save(unsaved map[rowKey]store.Usage) error {
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for k, u := range unsaved {
			l.usage[k].unsaved.Add(u)
		}
	}()
	return l.saveRows(unsaved)
}

// saveRows adds unsaved to the rows in the store, and deletes from unsaved the rows that were saved. The
// store gets whole sums, so nothing is counted twice even if a failed write took effect. The caller
// holds l.saving, which guards row.saved.
func (l *Log) saveRows(unsaved map[rowKey]store.Usage) error {
	var failed error
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	rows := make([]store.UsageRow, 0, len(unsaved))
	whole := make(map[rowKey]*store.Usage, len(unsaved))
	for k, u := range unsaved {
		r, next := l.row(k)
		if r.saved == nil {
			if own, err := l.store.OwnUsage(ctx, next); err == nil {
				r.saved = &own
			} else {
				failed = cmp.Or(failed, err)
				cancel() // other reads of the shared store would fail, too
			}
		}
		if r.saved == nil {
			continue
		}
		u.Add(*r.saved)
		next.Usage, whole[k] = u, &u
		rows = append(rows, next)
	}
	if err := l.store.SaveUsage(context.Background(), rows); err != nil {
		return errors.Join(failed, err)
	}
	for k, u := range whole {
		r, _ := l.row(k)
		r.saved = u
		delete(unsaved, k)
	}
	return failed
}

// row returns a row, and the row of the store without its sums.
func (l *Log) row(k rowKey) (*row, store.UsageRow) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.usage[k]
	return r, k.storeRow(r.keyName)
}

// EachUsage calls f with the rows of an account, of all gateways, on the days between from and to, and
// with the folded months that have one of these days. If from and to are hours, the rows are hours.
// They include requests that are not yet saved. There may be several rows of a day, key and deployment.
// Those of other gateways are at most half a minute old. f must not use the log.
func (l *Log) EachUsage(ctx context.Context, account, from, to string, f func(store.UsageRow) error) error {
	l.saving.Lock()
	defer l.saving.Unlock()
	if err := l.store.EachUsage(ctx, account, from, to, f); err != nil {
		return err
	}
	for _, r := range l.unsavedRows(account) {
		if len(r.Day) != len(to) || r.Day < from || r.Day > to {
			continue
		}
		if err := f(r); err != nil {
			return err
		}
	}
	return nil
}

// KeyUsage is [store.Store.KeyUsage], with requests that are not yet saved.
func (l *Log) KeyUsage(ctx context.Context, account, key string, from, to time.Time, f func(store.UsageRow)) error {
	l.saving.Lock()
	defer l.saving.Unlock()
	if err := l.store.KeyUsage(ctx, account, key, from, to, f); err != nil {
		return err
	}
	const dayHours = 24
	first, last := from.Unix()/hourSeconds/dayHours, to.Unix()/hourSeconds/dayHours
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, r := range l.usage {
		if day := k.hour / dayHours; k.daily && k.account == account && k.key == key && first <= day && day <= last &&
			r.unsaved.Requests > 0 {
			row := k.storeRow(r.keyName)
			row.Usage = r.unsaved
			f(row)
		}
	}
	return nil
}

// unsavedRows returns the requests of an account that are not yet saved.
func (l *Log) unsavedRows(account string) (rows []store.UsageRow) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, r := range l.usage {
		if k.account == account && r.unsaved.Requests > 0 {
			next := k.storeRow(r.keyName)
			next.Usage = r.unsaved
			rows = append(rows, next)
		}
	}
	return rows
}

const hourSeconds = 60 * 60
