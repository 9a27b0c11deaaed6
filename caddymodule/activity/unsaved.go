package activity

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/postern-dev/postern/connector/wait"
)

// unsaved are the requests that are not yet in the file. [Log.mu] guards it.
type unsaved struct {
	// requests has the oldest first. Elements do not change, so readers need no copy.
	requests []logged
	writing  []logged // those of the save in progress
	minutes  map[minute]*counted
	removed  []string // accounts that the file may have
	dropped  int
}

// logged is a request of an account.
type logged struct {
	account string
	Request
}

// minute identifies an entry that counts refused requests, or those that failed by the client's fault.
type minute struct {
	account, key, code string
	at                 int64
}

// counted is such an entry. It is in memory until its minute is over.
type counted struct {
	logged         // the last request
	saved   string // the entry's cursor in the file, "" if it is not there
	writing string // its cursor in the save in progress
	changed bool   // since the save
}

const (
	// maxUnsaved bounds the requests in memory, and the entries that count them.
	maxUnsaved = 8192
	// manyUnsaved is the number of requests from which they are saved early.
	manyUnsaved = maxUnsaved / 4
)

// add adds a request. It reports whether there is a new entry for it. The caller holds l.mu.
func (l *Log) add(account string, r *Request) (first bool) {
	u := &l.unsaved
	if r.class() == classCounted {
		return u.count(account, r)
	}
	if len(u.requests) >= maxUnsaved {
		u.drop()
	}
	if u.requests = append(u.requests, logged{account, *r}); len(u.requests) == manyUnsaved {
		wait.Wake(l.many, struct{}{})
	}
	return true
}

// drop makes room: of the older half, it drops all but the failed requests, or a part if all have failed.
func (u *unsaved) drop() {
	half := len(u.requests) / 2
	kept := make([]logged, 0, maxUnsaved)
	for _, r := range u.requests[:half] {
		if r.Outcome() == Failed {
			kept = append(kept, r)
		}
	}
	if len(kept) == half {
		kept = kept[half/2:]
	}
	kept = append(kept, u.requests[half:]...)
	u.dropped += len(u.requests) - len(kept)
	u.requests = kept
}

// count adds a request to the entry of its minute.
func (u *unsaved) count(account string, r *Request) (first bool) {
	key := minute{account, r.key(), r.ErrorCode, r.Time.Unix() / secondsPerMinute}
	e := u.minutes[key]
	if first = e == nil; first {
		if len(u.minutes) >= maxUnsaved {
			u.dropped++
			return false
		}
		e = new(counted)
		u.minutes[key] = e
	}
	r.Refusals = e.Refusals + 1
	e.logged, e.changed = logged{account, *r}, true
	return first
}

const secondsPerMinute = 60

// forget drops the requests of a removed account. Another one may get its name.
func (l *Log) forget(account string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := &l.unsaved
	u.removed = append(u.removed, account)
	u.requests = slices.DeleteFunc(slices.Clone(u.requests), func(r logged) bool { return r.account == account })
	maps.DeleteFunc(u.minutes, func(m minute, _ *counted) bool { return m.account == account })
	wait.Wake(l.many, struct{}{})
}

// find returns the requests of an account that a query selects, the newest first, and the cursors of entries
// in the file that these replace.
func (u *unsaved) find(l *Log, account string, q *Query) (found []Request, stale map[string]bool) {
	stale = make(map[string]bool)
	l.mu.Lock()
	parts := [][]logged{u.writing, u.requests, nil}
	for _, e := range u.minutes {
		if e.account == account && e.changed {
			parts[2] = append(parts[2], e.logged)
			stale[e.saved], stale[e.writing] = true, true
		}
	}
	l.mu.Unlock()
	for _, part := range parts {
		for i := range part {
			if r := &part[i]; r.account == account && q.Matches(&r.Request) && (q.Before == "" || r.cursor() < q.Before) {
				found = append(found, r.Request)
			}
		}
	}
	slices.SortFunc(found, newestFirst)
	return found, stale
}

// take returns the requests to write.
func (u *unsaved) take(l *Log) (requests []logged, entries []counted, removed []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u.writing, u.requests = u.requests, nil
	for _, e := range u.minutes {
		if e.changed {
			e.writing = e.cursor()
			entries = append(entries, *e)
		}
	}
	return u.writing, entries, u.removed
}

// settle is called after the requests that take has returned were written, or not.
func (u *unsaved) settle(l *Log, entries []counted, removed int, written bool) (dropped int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if written {
		u.removed = u.removed[removed:]
	} else {
		u.requests = append(u.writing, u.requests...)
		for len(u.requests) > maxUnsaved {
			u.drop()
		}
	}
	for _, saved := range entries {
		e := u.minutes[minute{saved.account, saved.key(), saved.ErrorCode, saved.Time.Unix() / secondsPerMinute}]
		if e == nil { // its account was removed
			continue
		}
		if written {
			e.saved, e.changed = saved.writing, e.Refusals != saved.Refusals
		}
		e.writing = ""
	}
	past, old := time.Now().Unix()/secondsPerMinute-1, time.Now().Unix()/secondsPerMinute-keptMinutes
	for key, e := range u.minutes {
		if key.at < past && !e.changed || key.at < old {
			delete(u.minutes, key)
		}
	}
	dropped, u.writing, u.dropped = u.dropped, nil, 0
	return dropped
}

// keptMinutes is how long entries stay in memory that cannot be saved.
const keptMinutes = 60

// saveRequests writes the unsaved requests to the file. If that fails, they stay in memory.
func (l *Log) saveRequests() error {
	l.file.saving.Lock()
	defer l.file.saving.Unlock()
	requests, entries, removed := l.unsaved.take(l)
	err := l.file.write(requests, entries, removed, func(account string) bool {
		_, ok := l.store.Account(account)
		return ok
	})
	if dropped := l.unsaved.settle(l, entries, len(removed), err == nil); dropped > 0 {
		l.log.Warn("requests are missing in the activity, because they could not be saved in time", "requests", dropped)
	}
	if err != nil && !errors.Is(err, errNotNow) {
		return fmt.Errorf("saving requests: %w", err)
	}
	return nil
}
