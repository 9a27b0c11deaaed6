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
	saveUsage  = 10 * time.Second
	saveRecent = time.Minute
)

// Close saves the unsaved activity. Requests that are recorded later are lost.
func (l *Log) Close() error {
	l.stop()
	l.worker.Wait()
	return errors.Join(l.saveUsage(), l.saveRecent())
}

// run saves until the log is closed.
func (l *Log) run(ctx context.Context) {
	usage, recent := time.NewTicker(saveUsage), time.NewTicker(saveRecent)
	defer usage.Stop()
	defer recent.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-usage.C:
			err = l.saveUsage()
		case <-recent.C:
			err = l.saveRecent()
		}
		if err != nil {
			l.log.Warn("failed to save the activity", "error", err)
		}
	}
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
