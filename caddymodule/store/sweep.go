package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// sweepInterval is how often the sweeper runs.
	sweepInterval = 10 * time.Minute
	// sweepAfter is how long expired records are kept, so that clients that still use
	// them get the reason.
	sweepAfter = 24 * time.Hour
	// sweepLong is how long revoked keys and expired management tokens are kept, for
	// reference.
	sweepLong = 90 * 24 * time.Hour
)

// sweep removes sessions, links and pairings that ended a day ago, keys and management
// tokens that ended 90 days ago, and leftovers of removed users and accounts.
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
		// If a compare fails, the next sweep tries again.
		if _, err := s.kv.Txn(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// sweep decides which records to remove. A record that has changed since the items were
// read is not removed.
type sweep struct {
	view   *view
	before time.Time       // records that ended before are removed
	long   time.Time       // the same for keys and management tokens
	paths  map[string]bool // of all records
	users  map[string]bool // ids of all users, including unreadable ones
}

func newSweep(v *view, items []Item, now time.Time) *sweep {
	w := &sweep{
		view: v, before: now.Add(-sweepAfter), long: now.Add(-sweepLong),
		paths: make(map[string]bool, len(items)), users: make(map[string]bool),
	}
	for _, item := range items {
		w.paths[item.Key] = true
		if dir, at := splitPath(item.Key); dir == userKind.dir {
			w.users[at.id] = true
		}
	}
	return w
}

// account reports whether an account exists.
func (w *sweep) account(id string) bool { return w.paths[accountKind.path("", id)] }

// ended reports whether a record should be removed.
func (w *sweep) ended(item Item) bool {
	dir, at := splitPath(item.Key)
	if k := viewed[dir]; k != nil {
		return k.swept(w, dir, at)
	}
	switch dir {
	case dirUsage:
		return !w.account(at.owner)
	case dirRecent:
		return !w.account(at.id)
	case dirMarks:
		kind, account, _ := strings.Cut(at.id, "/")
		return (kind == "accounts" || kind == "pairings") && !w.account(account)
	}
	return false
}

func (r *sessionRecord) ended(w *sweep) bool {
	u, readable := userKind.named(w.view, r.User)
	return !w.users[r.User] || readable && (r.Epoch < u.Epoch || r.current().ended(w.before))
}

func (r *keyRecord) ended(w *sweep) bool { return r.RevokedAt != nil && !w.long.Before(*r.RevokedAt) }

func (r *passkeyRecord) ended(w *sweep) bool { return !w.users[r.User] }

func (r *tokenRecord) ended(w *sweep) bool { return !w.users[r.User] || r.Expired(w.long) }

func (r *linkRecord) ended(w *sweep) bool {
	return !w.before.Before(r.ExpiresAt) || r.User != "" && !w.users[r.User] || r.Maker != "" && !w.users[r.Maker]
}

func (r *pairingRecord) ended(w *sweep) bool {
	end := cmp.Or(r.DecidedAt, &r.ExpiresAt)
	return !w.before.Before(*end)
}
