package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// sweepInterval is how often the sweeper runs, beginning at once.
	sweepInterval = 10 * time.Minute
	// sweepAfter is how long what has ended is kept, so that a client
	// that still has it gets the reason.
	sweepAfter = 24 * time.Hour
	// sweepLong is how long keys that were revoked and management tokens that have
	// ended are kept: they show who could do what.
	sweepLong = 90 * 24 * time.Hour
)

// sweepRegularly removes what is no longer needed, until the context ends.
func (s *Store) sweepRegularly(ctx context.Context) {
	ticker := time.NewTicker(sweepInterval)
	defer ticker.Stop()
	for {
		if err := s.sweep(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("failed to remove what has ended from the store", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// sweep removes sessions, links and pairings that ended a day ago, keys and
// management tokens that ended 90 days ago, and what a killed process has left of
// removed users and accounts.
func (s *Store) sweep(ctx context.Context) error {
	snap, err := s.kv.Range(ctx, Span{})
	if err != nil {
		return fmt.Errorf("reading the store: %w", err)
	}
	w := newSweep(snap.Items, s.now())
	var doomed []Item
	for _, item := range snap.Items {
		if w.ended(item) {
			doomed = append(doomed, item)
		}
	}
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

// sweep is what decides whether a record has ended: everything that there is.
type sweep struct {
	before   time.Time       // what ended then is to be removed
	long     time.Time       // likewise, what is kept for longer
	paths    map[string]bool // of all records
	users    map[string]*userRecord
	unread   map[string]bool      // ids of users that this program cannot read
	lastSeen map[string]time.Time // of sessions, by id
}

func newSweep(items []Item, now time.Time) *sweep {
	w := &sweep{
		before: now.Add(-sweepAfter), long: now.Add(-sweepLong), paths: make(map[string]bool, len(items)), users: make(map[string]*userRecord),
		unread: make(map[string]bool), lastSeen: make(map[string]time.Time),
	}
	for _, item := range items {
		w.paths[item.Key] = true
		switch dir, at := splitPath(item.Key); dir {
		case dirUsers:
			if r, err := userKind.decode(item); err == nil {
				w.users[at.id] = r
			} else {
				w.unread[at.id] = true
			}
		case dirSessionsSeen:
			var r lastUsedRecord
			if decode(item, &r) == nil {
				w.lastSeen[at.id] = r.LastUsedAt
			}
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
	switch dir {
	case dirSessions:
		r, err := sessionKind.decode(item)
		return err == nil && w.sessionEnded(r)
	case dirSessionsSeen:
		return !w.paths[sessionKind.path(at.owner, at.id)]
	case dirKeys:
		r, err := keyKind.decode(item)
		return err == nil && r.RevokedAt != nil && !w.long.Before(*r.RevokedAt)
	case dirLastUsed:
		return !w.paths[keyKind.path(at.owner, at.id)]
	case dirPasskeys:
		return w.gone(at.owner)
	case dirTokens:
		r, err := tokenKind.decode(item)
		return err == nil && (w.gone(r.User) || r.Expired(w.long))
	case dirConnectorsSeen:
		return !w.paths[connectorKind.path(at.owner, at.id)]
	case dirTokensUsed:
		return !w.paths[tokenKind.path(at.owner, at.id)]
	case dirLinks:
		r, err := linkKind.decode(item)
		return err == nil && (!w.before.Before(r.ExpiresAt) || r.User != "" && w.gone(r.User) || r.Maker != "" && w.gone(r.Maker))
	case dirPairings:
		r, err := pairingKind.decode(item)
		return err == nil && !w.before.Before(r.end())
	case dirRecent:
		return !w.paths[accountKind.path("", at.id)]
	case dirMarks:
		kind, account, found := strings.Cut(at.id, "/")
		return found && (kind == "accounts" || kind == "pairings") && !w.paths[accountKind.path("", account)]
	}
	return false
}

func (w *sweep) gone(user string) bool {
	_, known := w.users[user]
	return !known && !w.unread[user]
}

func (w *sweep) sessionEnded(r *sessionRecord) bool {
	if u, ok := w.users[r.User]; ok && r.Epoch < u.Epoch {
		return true
	}
	if seen := w.lastSeen[r.ID]; seen.After(r.SeenAt) {
		r.SeenAt = seen
	}
	return w.gone(r.User) || r.ended(w.before)
}

// end is after when nothing can happen to the pairing.
func (p Pairing) end() time.Time {
	if p.DecidedAt != nil {
		return *p.DecidedAt
	}
	return p.ExpiresAt
}
