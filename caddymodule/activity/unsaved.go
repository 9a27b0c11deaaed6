package activity

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/postern-dev/postern/connector/wait"
)

// unsaved are the requests that are not yet in the file. [Log.mu] guards them.
type unsaved struct {
	rows    [classes][]logged // the oldest first; elements do not change, so readers need no copy
	writing [classes][]logged // those of the save in progress
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
	at                 int64
}

const (
	// maxUnsaved bounds the requests of a class in memory, and the entries that count them.
	maxUnsaved = 8192
	// manyUnsaved is the number of requests from which they are saved early.
	manyUnsaved = maxUnsaved / 4

	secondsPerMinute = 60
)

// add adds a request. It reports whether there is a new entry for it. The caller holds l.mu.
func (l *Log) add(account string, r *Request) (first bool) {
	u := &l.unsaved
	class := classOf[r.Outcome()]
	if class == classCounted {
		return u.count(account, r)
	}
	rows := &u.rows[class]
	if len(*rows) == maxUnsaved {
		u.drop(rows)
	} else if len(*rows) == manyUnsaved {
		wait.Wake(l.many, struct{}{})
	}
	*rows = append(*rows, logged{account, *r})
	return true
}

// drop makes room: it drops the oldest rows.
func (u *unsaved) drop(rows *[]logged) {
	u.dropped += len(*rows) - maxUnsaved/2
	*rows = slices.Clone((*rows)[len(*rows)-maxUnsaved/2:])
}

// count adds a request to the entry of its minute.
func (u *unsaved) count(account string, r *Request) (first bool) {
	key := minute{account, r.key(), r.ErrorCode, time.Now().Unix() / secondsPerMinute}
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
	parts := slices.Concat(u.rows[:], u.writing[:], [][]logged{u.entries()})
	l.mu.Unlock()
	for _, part := range parts {
		for i := range part {
			if r := &part[i]; r.account == account && q.Matches(&r.Request) && (q.Before == "" || r.cursor() < q.Before) {
				f.Requests = append(f.Requests, r.Request)
			}
		}
	}
	// An entry may be there several times, with what it was before.
	slices.SortFunc(f.Requests, func(a, b Request) int { return cmp.Or(newestFirst(a, b), b.Refusals-a.Refusals) })
	f.Requests = slices.CompactFunc(f.Requests, func(a, b Request) bool { return newestFirst(a, b) == 0 })
	return f
}

// entries returns the entries of minutes that may not be over.
func (u *unsaved) entries() (rows []logged) {
	for _, e := range u.minutes {
		rows = append(rows, *e)
	}
	return rows
}

// take returns the requests to write.
func (u *unsaved) take(l *Log) (rows []logged, dropped int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u.rows[classCounted] = append(u.rows[classCounted], u.entries()...)
	u.writing, u.rows, dropped, u.dropped = u.rows, [classes][]logged{}, u.dropped, 0
	present := time.Now().Unix() / secondsPerMinute
	maps.DeleteFunc(u.minutes, func(m minute, _ *logged) bool { return m.at < present })
	return slices.Concat(u.writing[:]...), dropped
}

// settle is called after the requests that take has returned were written, or not.
func (u *unsaved) settle(l *Log, written bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for class, old := range u.writing {
		if rows := &u.rows[class]; !written {
			if *rows = append(old, *rows...); len(*rows) > maxUnsaved {
				u.drop(rows)
			}
		}
	}
	u.writing = [classes][]logged{}
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
	err := l.file.write(rows)
	if l.unsaved.settle(l, err == nil); err != nil {
		return fmt.Errorf("saving requests: %w", err)
	}
	return nil
}
