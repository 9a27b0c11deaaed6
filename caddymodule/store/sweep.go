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
		if dir, at := splitPath(item.Key); dir == dirUsers {
			w.users[at.id] = true
		}
	}
	return w
}

// ended reports whether a record should be removed. Unreadable records are kept: a newer
// program may understand them.
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

// end returns when the pairing was decided or expires.
func (p Pairing) end() time.Time {
	if p.DecidedAt != nil {
		return *p.DecidedAt
	}
	return p.ExpiresAt
}
