package store

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"
)

const (
	// sweepInterval is how often the sweeper runs.
	sweepInterval = 10 * time.Minute
	// sweepAfter is how long expired records are kept, so that their clients get the reason.
	sweepAfter = 24 * time.Hour
	// sweepLong is how long revoked and expired keys and management tokens are kept for users
	// to see.
	sweepLong = 90 * 24 * time.Hour
)

// compact drops the changes that the view contained at the previous call, so that watchers have at
// least sweepInterval to read a change.
func (s *Store) compact(ctx context.Context) error {
	old := s.compactTo
	s.compactTo = s.view.Load().revision
	if old == 0 || !s.Leads() {
		return nil
	}
	return s.shared.(Compacter).Compact(ctx, old)
}

// sweep removes set-up codes that have expired, answers to challenges that have expired, sessions, links and pairings
// that ended a day ago, keys and management tokens that ended 90 days ago, and leftovers of removed records, users and
// accounts. It finds them in the view.
func (s *Store) sweep(ctx context.Context) error {
	if !s.Leads() {
		return nil
	}
	now := s.now()
	w := &sweep{
		view: s.view.Load(), now: now, before: now.Add(-sweepAfter), long: now.Add(-sweepLong),
		owners: make(map[string]bool),
	}
	if w.view.unreadable.size > 0 {
		return nil // the records of an unreadable user would seem to have no user
	}
	for r := range leftoverKind.all(&w.view.records) {
		if r.ended(w) {
			if err := s.clearAccount(ctx, r.ID); err != nil {
				return err
			}
		}
	}
	for r := range keyKind.all(&w.view.records) {
		w.owners[r.Owner] = true
	}
	for _, kind := range kinds {
		kind.sweep(w)
	}
	for path, revision := range w.view.orphans.all() {
		w.remove(revision, path)
	}
	for chunk := range slices.Chunk(w.expired, MaxTxnOps/3) { // at most three keys each
		var t Txn
		for _, d := range chunk {
			t.If = append(t.If, Compare{Key: d.paths[0], ModRevision: d.revision})
			for _, path := range d.paths {
				t.Then = append(t.Then, Delete(path))
			}
		}
		// If a compare fails, the next sweep tries again.
		if _, err := s.shared.Txn(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// sweepOld removes usage and entries of audit logs that are too old.
func (s *Store) sweepOld(ctx context.Context) error {
	if !s.Leads() {
		return nil
	}
	var failed error
	for _, a := range append(s.Accounts(), Account{}) { // the last one is the gateway, with an audit log
		days, hours := s.oldUsage(a.ID)
		failed = errors.Join(failed, s.deleteSpans(ctx, days, hours, s.oldOperations(a.ID)), s.dropPeople(ctx, a.ID))
	}
	return failed
}

// sweep decides which records to remove. A record that has changed since is not removed.
type sweep struct {
	view    *view
	now     time.Time
	before  time.Time       // records that ended before are removed
	long    time.Time       // the same for keys and management tokens
	owners  map[string]bool // of keys
	expired []expiredRecord
}

// expiredRecord contains the KV keys of a record, of its time of use and of its name, and the
// revision of the record.
type expiredRecord struct {
	paths    []string
	revision int64
}

func (w *sweep) remove(revision int64, paths ...string) {
	w.expired = append(w.expired, expiredRecord{paths, revision})
}

// userRemoved reports whether a record belongs to a user who was removed. "" is not a user.
func (w *sweep) userRemoved(user string) bool {
	_, ok := userKind.byID(w.view, user)
	return user != "" && !ok
}

func (r *sessionRecord) ended(w *sweep) bool {
	u, ok := userKind.byID(w.view, r.User)
	return !ok || r.Epoch < u.Epoch || r.current().ended(w.before)
}

func (r *keyRecord) ended(w *sweep) bool {
	return r.RevokedAt != nil && !w.long.Before(*r.RevokedAt) || r.expired(w.long)
}

func (r *passkeyRecord) ended(w *sweep) bool { return w.userRemoved(r.User) }

func (r *tokenRecord) ended(w *sweep) bool { return w.userRemoved(r.User) || r.Expired(w.long) }

func (r *linkRecord) ended(w *sweep) bool {
	return !w.before.Before(r.ExpiresAt) || w.userRemoved(r.User) || w.userRemoved(r.Maker)
}

func (r *pairingRecord) ended(w *sweep) bool {
	end := cmp.Or(r.DecidedAt, &r.ExpiresAt)
	return !w.before.Before(*end)
}

// An expired code is not shown.
func (r *setupRecord) ended(w *sweep) bool { return !w.now.Before(r.ExpiresAt) }

// leftoverRecord notes that an account was removed. Other gateways may still write records of
// the account for a moment, so the sweeper removes them later.
type leftoverRecord struct {
	header
	ID    string    `json:"id"`
	Since time.Time `json:"since"`
}

func (r *leftoverRecord) key() recordKey { return recordKey{id: r.ID} }

func (r *leftoverRecord) ended(w *sweep) bool { return !w.before.Before(r.Since) }

var leftoverKind = &kind[leftoverRecord, *leftoverRecord]{
	dir:        "leftovers/",
	collection: func(r *records) *collection[*leftoverRecord] { return &r.leftovers },
}

// clearAccount deletes the remaining records of a removed account.
func (s *Store) clearAccount(ctx context.Context, id string) error {
	spans := []Span{
		Prefix(dirPeople + id + "/"), Prefix(dirUsage + id + "/"), Prefix(dirHours + id + "/"),
		Prefix(dirKeyNames + id + "/"), Prefix(auditPath(id)),
	}
	for dir, kind := range viewed {
		if kind.remain() {
			spans = append(spans, Prefix(dir+id+"/"))
		}
	}
	return s.deleteSpans(ctx, spans...)
}
