package activity

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// account has the last requests of an account. It is in memory while the account is active.
type account struct {
	recent  []Request // a ring once it has maxRecent elements
	oldest  int       // index into recent
	refused []Request // the oldest first
	loaded  bool      // recent and refused include the saved ones
	changed bool      // since they were saved
	used    time.Time // when a request was added, or they were read
}

// restTime is how long an account without requests stays in memory.
const restTime = 15 * time.Minute

// account returns an account. The caller holds l.mu.
func (l *Log) account(id string) *account {
	a := l.accounts[id]
	if a == nil {
		a = new(account)
		l.accounts[id] = a
	}
	a.used = time.Now()
	return a
}

// refuse adds a request without a valid key. It reports whether it added an entry.
func (a *account) refuse(r *Request) (first bool) {
	a.changed, r.Refusals = true, 1
	for i := range a.refused {
		entry := &a.refused[i]
		if entry.KeyID == r.KeyID && entry.Error == r.Error &&
			entry.Time.Truncate(time.Minute).Equal(r.Time.Truncate(time.Minute)) {
			r.Refusals += entry.Refusals
			*entry = *r
			return false
		}
	}
	a.refused = append(a.refused[max(0, len(a.refused)+1-maxRefused):], *r)
	return true
}

func (a *account) record(r *Request) {
	if len(a.recent) < maxRecent {
		a.recent = append(a.recent, *r)
	} else {
		a.recent[a.oldest] = *r
		a.oldest = (a.oldest + 1) % maxRecent
	}
	a.changed = true
}

// newestFirst returns a copy of the requests, the newest first.
func (a *account) newestFirst() []Request {
	out := make([]Request, 0, len(a.recent)+len(a.refused))
	out = append(append(out, a.recent[a.oldest:]...), a.recent[:a.oldest]...)
	if len(a.refused) > 0 {
		out = append(out, a.refused...)
		slices.SortStableFunc(out, func(a, b Request) int { return a.Time.Compare(b.Time) })
	}
	slices.Reverse(out)
	return out
}

// Recent returns the last 200 requests of an account, the newest first, and the last 50 entries
// about requests without a valid key.
func (l *Log) Recent(account string) []Request {
	if err := l.load(account); err != nil {
		l.log.Warn("failed to load the last requests of an account", "account_id", account, "error", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.account(account).newestFirst()
}

// Latest merges the results of Recent of several gateways.
func Latest(requests []Request) []Request {
	recent, refused := split(requests)
	newest := func(a, b Request) int { return cmp.Or(b.Time.Compare(a.Time), strings.Compare(a.ID, b.ID)) }
	slices.SortFunc(recent, newest)
	slices.SortFunc(refused, newest)
	recent = append(recent[:min(len(recent), maxRecent)], refused[:min(len(refused), maxRefused)]...)
	slices.SortFunc(recent, newest)
	return recent
}

// split separates requests from those without a valid key.
func split(all []Request) (recent, refused []Request) {
	for _, r := range all {
		if r.Refusals > 0 {
			refused = append(refused, r)
		} else {
			recent = append(recent, r)
		}
	}
	return recent, refused
}

// load adds the saved requests of an account to those in memory, once.
func (l *Log) load(id string) error {
	l.mu.Lock()
	loaded := l.account(id).loaded
	l.mu.Unlock()
	if loaded {
		return nil
	}
	data, err := l.store.LoadRecent(context.Background(), id)
	if err != nil && !errors.Is(err, store.ErrSchema) {
		return fmt.Errorf("loading the last requests: %w", err)
	}
	var saved []Request
	if err == nil {
		saved, err = decode(data)
	}
	if err != nil {
		l.log.Warn("failed to read the last requests of an account, so they are lost", "account_id", id, "error", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.account(id); !a.loaded {
		a.prepend(split(saved))
	}
	return nil
}

// prepend adds saved requests, the oldest first.
func (a *account) prepend(recent, refused []Request) {
	a.recent = append(append(recent, a.recent[a.oldest:]...), a.recent[:a.oldest]...)
	a.recent, a.oldest = a.recent[max(0, len(a.recent)-maxRecent):], 0
	a.refused = append(refused, a.refused...)
	a.refused = a.refused[max(0, len(a.refused)-maxRefused):]
	a.loaded = true
}

// saveRecent saves the last requests of the accounts that have changed. It drops idle accounts, and
// accounts that were removed from the store.
func (l *Log) saveRecent() error {
	l.mu.Lock()
	accounts := slices.Collect(maps.Keys(l.accounts))
	l.mu.Unlock()
	var errs []error
	for _, id := range accounts {
		errs = append(errs, l.saveAccount(id))
	}
	return errors.Join(errs...)
}

func (l *Log) saveAccount(id string) error {
	if _, ok := l.store.Account(id); !ok {
		l.mu.Lock()
		delete(l.accounts, id)
		l.mu.Unlock()
		return nil
	}
	l.mu.Lock()
	a := l.accounts[id]
	changed, idle := a.changed, time.Since(a.used) > restTime
	if !changed && idle {
		delete(l.accounts, id)
	}
	l.mu.Unlock()
	if !changed {
		return nil
	}
	err := l.load(id)
	if err == nil {
		err = l.saveLoaded(id, a)
	}
	if err != nil {
		return fmt.Errorf("saving the last requests of account %q: %w", id, err)
	}
	return nil
}

func (l *Log) saveLoaded(id string, a *account) error {
	l.mu.Lock()
	recent := a.newestFirst()
	a.changed = false
	l.mu.Unlock()
	data, err := encode(recent)
	if err == nil {
		err = l.store.SaveRecent(context.Background(), id, data)
	}
	if err != nil {
		l.mu.Lock()
		a.changed = true
		l.mu.Unlock()
	}
	return err
}

// decode returns saved requests, the oldest first.
func decode(data []byte) ([]Request, error) {
	if len(data) == 0 {
		return nil, nil
	}
	var recent []Request
	if err := json.Unmarshal(data, &recent); err != nil {
		return nil, err
	}
	recent = recent[:min(len(recent), maxRecent+maxRefused)]
	slices.Reverse(recent)
	return recent, nil
}

// encode encodes the requests. It omits the oldest ones if the result is too large,
// which only long names can cause. The other half of the limit is for the rest of the record.
func encode(newestFirst []Request) ([]byte, error) {
	for {
		data, err := json.Marshal(newestFirst)
		if err != nil || len(data) <= store.MaxValue/2 {
			return data, err
		}
		newestFirst = newestFirst[:len(newestFirst)/2]
	}
}
