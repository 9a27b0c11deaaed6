package activity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// How often what is in memory is written to the store.
const (
	saveDays   = 10 * time.Second
	saveRecent = time.Minute
)

// Close writes what is not saved yet. The error names what could not be. What is
// recorded later is lost.
func (l *Log) Close() error {
	l.closed.Do(func() { close(l.stop) })
	l.worker.Wait()
	return errors.Join(l.saveDays(), l.saveRecent())
}

// run saves until the log is closed.
func (l *Log) run() {
	days, recent := time.NewTicker(saveDays), time.NewTicker(saveRecent)
	defer days.Stop()
	defer recent.Stop()
	for {
		var err error
		select {
		case <-l.stop:
			return
		case <-days.C:
			err = l.saveDays()
		case <-recent.C:
			l.removeGone()
			err = l.saveRecent()
		}
		if err != nil {
			l.log.Warn("failed to save the activity", "error", err)
		}
	}
}

// removeGone removes the accounts that are gone, of which nothing can be saved.
func (l *Log) removeGone() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.accounts {
		if _, ok := l.store.Account(id); !ok {
			delete(l.accounts, id)
		}
	}
}

// saveDays adds the sums to those of the store, account by account, so that one
// of them cannot keep the others from it. Sums that cannot be written wait for
// the next time. It cannot be interrupted: a sum of which it is not known
// whether it was written would be added twice, or never.
func (l *Log) saveDays() error {
	l.saving.Lock()
	defer l.saving.Unlock()
	var errs []error
	for id, sums := range l.takeSums() {
		days := make([]store.UsageDay, len(sums))
		for i, s := range sums {
			days[i] = s.UsageDay
		}
		err := l.store.AddUsage(context.Background(), days)
		if err == nil {
			continue
		}
		if _, ok := l.store.Account(id); ok {
			l.putBack(id, sums)
			errs = append(errs, fmt.Errorf("saving the sums of the account %q: %w", id, err))
		}
	}
	return errors.Join(errs...)
}

// takeSums takes what is to be saved.
func (l *Log) takeSums() map[string][]sum {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := make(map[string][]sum)
	for id, a := range l.accounts {
		if len(a.unsaved) > 0 {
			taken[id] = a.unsaved
			a.unsaved = nil
		}
	}
	return taken
}

// putBack is for sums that could not be saved.
func (l *Log) putBack(id string, sums []sum) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(id)
	for _, s := range sums {
		a.add(id, s.day, s.UsageDay)
	}
}

// saveRecent writes the last requests of the accounts that had some.
func (l *Log) saveRecent() error {
	var errs []error
	for _, id := range l.changed() {
		data, err := encode(l.takeRecent(id))
		if err == nil {
			err = l.store.SaveRecent(context.Background(), id, data)
		}
		if err == nil {
			continue
		}
		if _, ok := l.store.Account(id); ok {
			l.retryRecent(id)
			errs = append(errs, fmt.Errorf("saving the last requests of the account %q: %w", id, err))
		}
	}
	return errors.Join(errs...)
}

// encode leaves the oldest requests out if the store has no room for all of
// them, as it may be with long names. It uses half of a value, for the record
// around it.
func encode(newestFirst []Request) ([]byte, error) {
	for {
		data, err := json.Marshal(newestFirst)
		if err != nil || len(data) <= store.MaxValue/2 {
			return data, err
		}
		newestFirst = newestFirst[:len(newestFirst)/2]
	}
}

// changed returns the accounts with requests that are not saved.
func (l *Log) changed() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ids []string
	for id, a := range l.accounts {
		if a.changed {
			ids = append(ids, id)
		}
	}
	return ids
}

// takeRecent copies the requests of one account, so that Record waits for no
// more than that.
func (l *Log) takeRecent(id string) []Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(id)
	a.changed = false
	return a.newestFirst()
}

// retryRecent has the last requests saved the next time.
func (l *Log) retryRecent(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.accounts[id]; a != nil {
		a.changed = true
	}
}
