package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// sweepInterval is how often the sweeper runs.
	sweepInterval = 10 * time.Minute
	// sweepAfter is how long what has ended is kept, so that a client
	// that still has it gets the reason.
	sweepAfter = 24 * time.Hour
	// sweepLong is how long keys that were revoked and management tokens that have
	// ended are kept: they show who could do what.
	sweepLong = 90 * 24 * time.Hour
)

// sweep removes sessions, links and pairings that ended a day ago, keys and
// management tokens that ended 90 days ago, and what a killed process has left of
// removed users and accounts.
func (s *Store) sweep(ctx context.Context) error {
	snap, err := s.kv.Range(ctx, Span{})
	if err != nil {
		return fmt.Errorf("reading the store: %w", err)
	}
	w := newSweep(s.view.Load(), snap.Items, s.now())
	doomed := slices.DeleteFunc(snap.Items, func(i Item) bool { return !w.ended(i) })
	for chunk := range slices.Chunk(doomed, MaxTxnOps) {
		var t Txn
		for _, item := range chunk {
			t.If = append(t.If, Compare{Key: item.Key, ModRevision: item.ModRevision})
			t.Then = append(t.Then, Delete(item.Key))
		}
		// When a compare does not hold, the next sweep comes to it.
		if _, err := s.kv.Txn(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// sweep decides whether a record has ended. A record in the view that has changed
// since the items were read is not removed.
type sweep struct {
	view   *view
	before time.Time       // what ended then is to be removed
	long   time.Time       // likewise, what is kept for longer
	paths  map[string]bool // of all records
	users  map[string]bool // ids of all users, also of those that this program cannot read
}

func newSweep(v *view, items []Item, now time.Time) *sweep {
	w := &sweep{
		view: v, before: now.Add(-sweepAfter), long: now.Add(-sweepLong),
		paths: make(map[string]bool, len(items)), users: make(map[string]bool),
	}
	for _, item := range items {
		w.paths[item.Key] = true
		if dir, at := splitPath(item.Key); dir == dirUsers {
			w.users[at.id] = true
		}
	}
	return w
}

// ended reports whether a record is to be removed. One that cannot be read
// stays: a newer program may know what it is.
func (w *sweep) ended(item Item) bool {
	dir, at := splitPath(item.Key)
	if slices.Contains(accountDirs, dir) && !w.paths[accountKind.path("", at.owner)] {
		return true
	}
	if times, ok := viewed[dir].(interface{ of(key) string }); ok {
		return !w.paths[times.of(at)]
	}
	switch dir {
	case dirSessions:
		r, ok := sessionKind.named(w.view, at.id)
		u, known := userKind.named(w.view, at.owner)
		return w.gone(at.owner) || ok && known && (r.Epoch < u.Epoch || r.current().ended(w.before))
	case dirKeys:
		r, ok := keyKind.named(w.view, at.id)
		return ok && r.RevokedAt != nil && !w.long.Before(*r.RevokedAt)
	case dirPasskeys:
		return w.gone(at.owner)
	case dirTokens:
		r, ok := tokenKind.named(w.view, at.id)
		return ok && (w.gone(r.User) || r.Expired(w.long))
	case dirLinks:
		r, ok := linkKind.named(w.view, at.id)
		return ok && (!w.before.Before(r.ExpiresAt) || r.User != "" && w.gone(r.User) || r.Maker != "" && w.gone(r.Maker))
	case dirPairings:
		r, ok := pairingKind.named(w.view, at.id)
		return ok && !w.before.Before(r.end())
	case dirRecent:
		return !w.paths[accountKind.path("", at.id)]
	case dirMarks:
		kind, account, found := strings.Cut(at.id, "/")
		return found && (kind == "accounts" || kind == "pairings") && !w.paths[accountKind.path("", account)]
	}
	return false
}

func (w *sweep) gone(user string) bool { return !w.users[user] }

// end is after when nothing can happen to the pairing.
func (p Pairing) end() time.Time {
	if p.DecidedAt != nil {
		return *p.DecidedAt
	}
	return p.ExpiresAt
}
