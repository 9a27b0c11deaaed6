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
	rows    map[string]map[unsavedKey]*Request // by account
	n       int                                // number of rows and of their IDs
	dropped int
}

// unsavedKey identifies an unsaved request of an account. Equal refusals of a minute have the same key.
type unsavedKey struct {
	row string
	at  time.Time // when the request began, or the minute of an entry
}

// logged is an unsaved request of an account.
type logged struct {
	account string
	unsavedKey
	*Request
}

const (
	maxUnsaved = 32768 // rows and their IDs
	maxIDs     = 64    // of an entry
	// maxIDsKeyless is maxIDs for requests without a valid key, which anyone can send.
	maxIDsKeyless = 4
)

// add adds a request, which it may change, and reports whether there is a new row for it.
func (u *unsaved) add(account string, r *Request) (first bool) {
	k := unsavedKey{r.ID, r.Time}
	used := r.InputTokens+r.OutputTokens > 0 // it has a row, whatever ended it
	if outcome := r.Outcome(); !used && (outcome == Refused || outcome == Client) {
		r.Refusals, r.first = 1, r.ID
		k.row, k.at = r.key()+"/"+r.ErrorCode+"/"+r.Person, time.Now().Truncate(time.Minute)
	}
	if u.rows[account] == nil {
		u.rows[account] = make(map[unsavedKey]*Request)
	}
	old := u.rows[account][k]
	switch {
	case old == nil:
		u.n++
	case r.Refusals > 0:
		r.Refusals, r.Time, r.first = old.Refusals+1, old.Time, old.first
		if r.IDs = old.IDs; len(r.IDs) == 0 {
			r.IDs = []string{old.ID}
		}
		limit := maxIDs
		if r.KeyID == "" {
			limit = maxIDsKeyless
		}
		r.IDs = slices.Concat(r.IDs[max(0, len(r.IDs)+1-limit):], []string{r.ID}) // readers may use the old array
		u.n += len(r.IDs) - len(old.IDs)
	}
	u.rows[account][k] = r
	if u.n > maxUnsaved {
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
	oldest := slices.SortedFunc(maps.Keys(rows), func(a, b unsavedKey) int { return a.at.Compare(b.at) })
	for _, k := range oldest[:(len(oldest)+1)/2] {
		u.delete(largest, k)
		u.dropped++
	}
}

// delete deletes a row.
func (u *unsaved) delete(account string, k unsavedKey) {
	rows := u.rows[account]
	u.n -= 1 + len(rows[k].IDs)
	if delete(rows, k); len(rows) == 0 {
		delete(u.rows, account)
	}
}

// written removes a request that is in the file, unless it is an entry that may get more.
func (u *unsaved) written(r logged) {
	if u.rows[r.account][r.unsavedKey] == r.Request && (r.Refusals == 0 || time.Since(r.at) >= time.Minute) {
		u.delete(r.account, r.unsavedKey)
	}
}

// unsavedOf returns the unsaved requests of an account.
func (l *Log) unsavedOf(account string) []*Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.unsaved.rows[account]))
}

// toWrite returns the unsaved requests, the oldest first, and how many were dropped since the last call.
func (l *Log) toWrite() (all []logged, dropped int) {
	l.mu.Lock()
	for account, rows := range l.unsaved.rows {
		for k, r := range rows {
			all = append(all, logged{account, k, r})
		}
	}
	dropped, l.unsaved.dropped = l.unsaved.dropped, 0
	l.mu.Unlock()
	slices.SortFunc(all, func(a, b logged) int { return a.Time.Compare(b.Time) })
	return all, dropped
}

// saveRequests writes the unsaved requests to the file. If that fails, they stay in memory.
func (l *Log) saveRequests() error {
	if l.file.path == "" {
		return nil
	}
	rows, dropped := l.toWrite()
	if dropped > 0 {
		l.log.Warn("requests are missing in the activity, because they could not be saved in time", "requests", dropped)
	}
	if err := l.file.write(rows); err != nil {
		return fmt.Errorf("saving requests: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range rows {
		l.unsaved.written(r)
	}
	return nil
}
