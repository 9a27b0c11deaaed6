package activity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// Intervals at which the activity is saved.
const (
	saveDays   = 10 * time.Second
	saveRecent = time.Minute
)

// Close saves the unsaved activity. Requests that are recorded later are lost.
func (l *Log) Close() error {
	l.stop()
	l.worker.Wait()
	return errors.Join(l.saveDays(), l.saveRecent())
}

// run saves until the log is closed.
func (l *Log) run(ctx context.Context) {
	days, recent := time.NewTicker(saveDays), time.NewTicker(saveRecent)
	defer days.Stop()
	defer recent.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-days.C:
			err = l.saveDays()
		case <-recent.C:
			err = l.saveRecent()
		}
		if err != nil {
			l.log.Warn("failed to save the activity", "error", err)
		}
	}
}

// saveDays saves the sums that have changed. What it could not save is tried again: as the
// store gets whole sums, nothing is counted twice even if a failed write took effect.
func (l *Log) saveDays() error {
	l.saving.Lock()
	defer l.saving.Unlock()
	today := dayOf(l.now())
	return l.eachAccount(func(id string, a *account) error {
		l.mu.Lock()
		unsaved := make(map[int64]store.UsageDay)
		for day, s := range a.sums {
			if s.unsaved.Requests > 0 {
				unsaved[day], s.unsaved = s.unsaved, store.UsageDay{}
			} else if day < today {
				delete(a.sums, day)
			}
		}
		l.mu.Unlock()
		err := l.saveSums(id, a, unsaved)
		if err == nil {
			return nil
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		for day, u := range unsaved {
			a.sums[day].unsaved.Add(u)
		}
		return fmt.Errorf("saving the daily sums of account %q: %w", id, err)
	})
}

// saveSums saves the sums of an account with what is unsaved. It cannot be canceled, so that
// closing the log saves everything. The caller holds l.saving, which guards sum.saved.
func (l *Log) saveSums(id string, a *account, unsaved map[int64]store.UsageDay) error {
	whole := make(map[*sum]*store.UsageDay, len(unsaved))
	var days []store.UsageDay
	for day, u := range unsaved {
		l.mu.Lock()
		s := a.sums[day]
		l.mu.Unlock()
		if s.saved == nil {
			own, err := l.store.OwnUsage(context.Background(), id, dayName(day))
			if err != nil {
				return err
			}
			s.saved = &own
		}
		u.Account, u.Day = s.saved.Account, s.saved.Day
		u.Add(*s.saved)
		whole[s], days = &u, append(days, u)
	}
	if err := l.store.SaveUsage(context.Background(), days); err != nil {
		return err
	}
	for s, u := range whole {
		s.saved = u
	}
	return nil
}

// saveRecent saves the last requests of the accounts that have changed.
func (l *Log) saveRecent() error {
	return l.eachAccount(func(id string, a *account) error {
		l.mu.Lock()
		var recent []Request
		if a.changed {
			recent = a.newestFirst()
		}
		a.changed = false
		l.mu.Unlock()
		if recent == nil {
			return nil
		}
		data, err := encode(recent)
		if err == nil {
			err = l.store.SaveRecent(context.Background(), id, data)
		}
		if err == nil {
			return nil
		}
		l.mu.Lock()
		a.changed = true
		l.mu.Unlock()
		return fmt.Errorf("saving the last requests of account %q: %w", id, err)
	})
}

// eachAccount calls f for each account, even if it fails for some. Accounts that were
// removed from the store are dropped.
func (l *Log) eachAccount(f func(id string, a *account) error) error {
	l.mu.Lock()
	accounts := maps.Clone(l.accounts)
	l.mu.Unlock()
	var errs []error
	for id, a := range accounts {
		if _, ok := l.store.Account(id); ok {
			errs = append(errs, f(id, a))
			continue
		}
		l.mu.Lock()
		delete(l.accounts, id)
		l.mu.Unlock()
	}
	return errors.Join(errs...)
}

// encode encodes the requests. It omits the oldest ones if the result is too large,
// which only long names can cause. The limit leaves room for the rest of the record.
func encode(newestFirst []Request) ([]byte, error) {
	for {
		data, err := json.Marshal(newestFirst)
		if err != nil || len(data) <= store.MaxValue/2 {
			return data, err
		}
		newestFirst = newestFirst[:len(newestFirst)/2]
	}
}
