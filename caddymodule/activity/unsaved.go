package activity

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// unsaved are the requests that are not yet in the file, and the entries of this minute. [Log.mu]
// guards them. A request does not change: an entry that counts another one is replaced.
type unsaved struct {
	rows    map[string]map[place]*Request // by account
	n       int                           // number of rows and of their IDs
	dropped int
}

// place distinguishes the unsaved requests of an account. Equal refusals of a minute have the same.
type place struct {
	name string
	at   time.Time // when the request began, or the minute of an entry
}

// logged is an unsaved request of an account.
type logged struct {
	account string
	place
	*Request
}

const (
	maxUnsaved = 32768 // rows and their IDs
	maxIDs     = 64    // of an entry
	// strangerIDs is maxIDs for requests without a valid key, which anyone can send.
	strangerIDs = 4
)

// add adds a request, which it may change, and reports whether there is a new row for it.
func (u *unsaved) add(account string, r *Request) (first bool) {
	at := r.Time
	if outcome := r.Outcome(); outcome == Refused || outcome == Client {
		r.Refusals, at = 1, time.Now().Truncate(time.Minute)
	}
	if u.rows[account] == nil {
		u.rows[account] = make(map[place]*Request)
	}
	p := place{r.row(), at}
	old := u.rows[account][p]
	switch {
	case old == nil:
		u.n++
	case r.Refusals > 0:
		r.Refusals, r.Time = old.Refusals+1, old.Time
		if r.IDs = old.IDs; len(r.IDs) == 0 {
			r.IDs = []string{old.ID}
		}
		most := maxIDs
		if r.KeyID == "" {
			most = strangerIDs
		}
		r.IDs = slices.Concat(r.IDs[max(0, len(r.IDs)+1-most):], []string{r.ID}) // readers have the old array
		u.n += len(r.IDs) - len(old.IDs)
	}
	if u.rows[account][p] = r; u.n > maxUnsaved {
		u.drop()
	}
	return old == nil
}

// drop drops the older half of the account with most rows.
func (u *unsaved) drop() {
	largest := ""
	for account, rows := range u.rows {
		if len(rows) > len(u.rows[largest]) {
			largest = account
		}
	}
	rows := u.rows[largest]
	places := slices.SortedFunc(maps.Keys(rows), func(a, b place) int { return a.at.Compare(b.at) })
	for _, p := range places[:(len(places)+1)/2] {
		u.delete(largest, p)
		u.dropped++
	}
}

// delete deletes a row.
func (u *unsaved) delete(account string, p place) {
	rows := u.rows[account]
	u.n -= 1 + len(rows[p].IDs)
	if delete(rows, p); len(rows) == 0 {
		delete(u.rows, account)
	}
}

// of returns the requests of an account.
func (u *unsaved) of(l *Log, account string) []*Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(u.rows[account]))
}

// take returns the requests to write, the oldest first.
func (u *unsaved) take(l *Log) (all []logged, dropped int) {
	l.mu.Lock()
	for account, rows := range u.rows {
		for p, r := range rows {
			all = append(all, logged{account, p, r})
		}
	}
	dropped, u.dropped = u.dropped, 0
	l.mu.Unlock()
	slices.SortFunc(all, func(a, b logged) int { return a.Time.Compare(b.Time) })
	return all, dropped
}

// saved removes a request that was written, unless it is an entry that may get more.
func (u *unsaved) saved(r logged) {
	if u.rows[r.account][r.place] == r.Request && (r.Refusals == 0 || time.Since(r.at) >= time.Minute) {
		u.delete(r.account, r.place)
	}
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
	for _, r := range rows {
		l.unsaved.saved(r)
	}
	return nil
}
