package activity

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// usageKey identifies a row of this gateway's usage.
type usageKey struct {
	hour                     int64 // since 1970 in UTC; the first one of a day
	daily                    bool  // the row is that of the day
	account, key, deployment string
	person                   string // of a row of a person, which has no deployment; else ""
}

// usageRow is a row of this gateway's usage. It is dropped when it is idle, and read from the store again
// for the next request.
type usageRow struct {
	keyName string
	saved   *store.Usage // nil: not yet read from the store
	unsaved store.Usage  // requests since
}

// storeRow returns the row of the store with this key, without sums.
func (k usageKey) storeRow(keyName string) store.UsageRow {
	layout := store.HourOnly
	if k.daily {
		layout = time.DateOnly
	}
	day := time.Unix(k.hour*hourSeconds, 0).UTC().Format(layout)
	return store.UsageRow{
		Account: k.account, Day: day, Key: k.key, Deployment: k.deployment, Person: k.person, KeyName: keyName,
	}
}

// countUsage adds a request to the rows of the day and the hour in which it ended, as limits do. The caller
// holds l.mu.
func (l *Log) countUsage(account string, r *Request) {
	ended := r.Time.Add(time.Duration(r.DurationMillis * float64(time.Millisecond)))
	hour, usage := max(0, ended.Unix()/hourSeconds), r.usage()
	day := usageKey{hour: hour - hour%24, daily: true, account: account, key: r.KeyID, deployment: r.Deployment}
	l.add(day, r.KeyName, usage)
	l.add(usageKey{hour: hour, account: account, key: r.KeyID, deployment: r.Deployment}, r.KeyName, usage)
	if r.Person != "" {
		day.deployment, day.person = "", r.Person
		usage.FirstTokenTimes, usage.Waits, usage.Speeds = store.Histogram{}, store.Histogram{}, store.Histogram{}
		l.add(day, "", usage)
	}
}

// add adds a request to a row. The caller holds l.mu.
func (l *Log) add(k usageKey, keyName string, usage store.Usage) {
	counted := l.usage[k]
	if counted == nil {
		counted = new(usageRow)
		l.usage[k] = counted
	}
	counted.keyName = keyName
	counted.unsaved.Add(usage)
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

// saveUsage saves the rows that have changed, and drops those that have not. Rows that are not saved stay unsaved, even
// after a panic. It cannot be canceled, so that closing the log saves everything.
func (l *Log) saveUsage() error {
	l.saving.Lock()
	defer l.saving.Unlock()
	unsaved := make(map[usageKey]store.Usage)
	l.mu.Lock()
	for k, r := range l.usage {
		if r.unsaved.Requests == 0 {
			delete(l.usage, k)
			continue
		}
		unsaved[k], r.unsaved = r.unsaved, store.Usage{}
	}
	l.mu.Unlock()
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
func (l *Log) saveRows(unsaved map[usageKey]store.Usage) error {
	var failed error
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	rows := make([]store.UsageRow, 0, len(unsaved))
	whole := make(map[usageKey]*store.Usage, len(unsaved))
	for k, u := range unsaved {
		r, next := l.usageRow(k)
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
		r, _ := l.usageRow(k)
		r.saved = u
		delete(unsaved, k)
	}
	return failed
}

// usageRow returns a row, and the row of the store without its sums.
func (l *Log) usageRow(k usageKey) (*usageRow, store.UsageRow) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.usage[k]
	return r, k.storeRow(r.keyName)
}

// EachUsage is [store.Store.EachUsage], with requests that are not yet saved. There may be several rows of a day, key
// and deployment. f must not use the log.
func (l *Log) EachUsage(ctx context.Context, account, key, from, to string, f func(store.UsageRow) error) error {
	for from, to := range pieces(from, to) {
		if err := l.eachUsage(ctx, account, key, from, to, f); err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) eachUsage(ctx context.Context, account, key, from, to string, f func(store.UsageRow) error) error {
	l.saving.Lock()
	defer l.saving.Unlock()
	if err := l.store.EachUsage(ctx, account, key, from, to, f); err != nil {
		return err
	}
	for _, r := range l.unsavedRows(account, false) {
		if len(r.Day) != len(to) || r.Day < from || r.Day > to || key != "" && r.Key != key {
			continue
		}
		if err := f(r); err != nil {
			return err
		}
	}
	return nil
}

// pieces divides a period into pieces of at most 31 days or hours, so that reading a long one does not keep saving
// waiting. A row belongs to one day or hour.
func pieces(from, to string) iter.Seq2[string, string] {
	layout, step := store.UnitOf(from)
	return func(yield func(from, to string) bool) {
		at, err := time.Parse(layout, from)
		if err != nil {
			yield(from, to) // the store refuses it
			return
		}
		for from <= to {
			last := min(to, at.Add(30*step).Format(layout))
			at = at.Add(31 * step)
			if !yield(from, last) {
				return
			}
			from = at.Format(layout)
		}
	}
}

// unsavedRows returns the requests of an account that are not yet saved, of people or in all.
func (l *Log) unsavedRows(account string, people bool) (rows []store.UsageRow) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, r := range l.usage {
		if k.account == account && (k.person != "") == people && r.unsaved.Requests > 0 {
			next := k.storeRow(r.keyName)
			next.Usage = r.unsaved
			rows = append(rows, next)
		}
	}
	return rows
}

const hourSeconds = 60 * 60
