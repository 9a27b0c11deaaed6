package activity

import (
	"fmt"
	"slices"
	"time"
)

// unsaved are the requests that are not yet in the file. [Log.mu] guards them.
type unsaved struct {
	rows    [classes][]logged // the oldest first; elements do not change, so readers need no copy
	taken   [classes]int      // how many of them the save in progress writes
	minutes map[minute]*logged
	dropped int
}

// logged is a request of an account, or an entry that counts several.
type logged struct {
	account string
	Request
}

// minute identifies an entry that counts refused requests, or those that failed by the client's fault. It is in
// memory until its minute is over. It has the time of the first request, and else what the last one has.
type minute struct {
	account, key, code string
	at                 time.Time
}

// maxUnsaved bounds the requests of a class in memory, and the entries that count them.
const maxUnsaved = 16384

// add adds a request. It reports whether there is a new entry for it. The caller holds l.mu.
func (l *Log) add(account string, r *Request) (first bool) {
	u := &l.unsaved
	class := classOf[r.Outcome()]
	if class == classCounted {
		return u.count(account, r)
	}
	if len(u.rows[class]) == maxUnsaved {
		u.drop(class)
	}
	u.rows[class] = append(u.rows[class], logged{account, *r})
	return true
}

// drop makes room: it drops the oldest rows of a class.
func (u *unsaved) drop(class int) {
	n := len(u.rows[class]) - maxUnsaved/2
	u.rows[class] = slices.Clone(u.rows[class][n:])
	u.taken[class] = max(0, u.taken[class]-n)
	u.dropped += n
}

// count adds a request to the entry of its minute.
func (u *unsaved) count(account string, r *Request) (first bool) {
	key := minute{account, r.key(), r.ErrorCode, time.Now().Truncate(time.Minute)}
	e := u.minutes[key]
	if first = e == nil; first {
		if len(u.minutes) == maxUnsaved {
			u.dropped++
			return false
		}
		e = &logged{account, Request{Time: r.Time}}
		u.minutes[key] = e
	}
	refusals, at := e.Refusals+1, e.Time
	e.Request = *r
	e.Refusals, e.Time = refusals, at
	return first
}

// find returns the requests of an account that a query selects.
func (u *unsaved) find(l *Log, account string, q *Query) (f Found) {
	l.mu.Lock()
	parts := slices.Concat(u.rows[:], [][]logged{u.entries(account)})
	l.mu.Unlock()
	for _, part := range parts {
		for i := range part {
			if r := &part[i]; r.account == account && q.Matches(&r.Request) && (q.Before == "" || r.cursor() < q.Before) {
				f.Requests = append(f.Requests, r.Request)
			}
		}
	}
	return f
}

// entries returns the entries of minutes that may not be over, of an account; "": of all.
func (u *unsaved) entries(account string) (rows []logged) {
	for _, e := range u.minutes {
		if account == "" || e.account == account {
			rows = append(rows, *e)
		}
	}
	return rows
}

// take returns the requests to write.
func (u *unsaved) take(l *Log) (rows []logged, dropped int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for m, e := range u.minutes {
		if time.Since(m.at) >= time.Minute {
			u.rows[classCounted] = append(u.rows[classCounted], *e)
			delete(u.minutes, m)
		}
	}
	for class := range u.rows {
		if len(u.rows[class]) > maxUnsaved {
			u.drop(class)
		}
		u.taken[class] = len(u.rows[class])
	}
	dropped, u.dropped = u.dropped, 0
	return append(slices.Concat(u.rows[:]...), u.entries("")...), dropped
}

// saveRequests writes the unsaved requests to the file. If that fails, they stay in memory.
func (l *Log) saveRequests() error {
	if l.file.path == "" {
		return nil
	}
	rows, dropped := l.unsaved.take(l)
	if dropped > 0 {
		l.log.Warn("requests are missing in the activity, because they could not be saved in time", "requests", dropped)
	}
	if err := l.file.write(rows); err != nil {
		return fmt.Errorf("saving requests: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for class, n := range l.unsaved.taken {
		l.unsaved.rows[class] = slices.Clone(l.unsaved.rows[class][n:])
	}
	return nil
}
