package store

import (
	"context"
	"time"

	"github.com/postern-dev/postern/connector/wait"
)

// expiryNotices are the times before the expiry of a key at which subscribers get a notice, the
// longest first.
var expiryNotices = [...]time.Duration{ExpiryNotice, 24 * time.Hour}

// ExpiryNotice is how long before its expiry a key is first reported as expiring.
const ExpiryNotice = 7 * 24 * time.Hour

// expiryLook is how often the store looks for keys and secrets that have expired. New requests do
// not depend on it: see Credential.Refusal.
const expiryLook = 30 * time.Second

// expire ends the requests of keys and secrets that have expired, and notifies subscribers, until
// the context ends.
func (s *Store) expire(ctx context.Context) {
	for last := s.now(); wait.For(ctx, expiryLook) == nil; {
		now := s.now()
		s.expireAll(last, now)
		last = now
	}
}

// expireAll does what expire does, for the time from last to now.
func (s *Store) expireAll(last, now time.Time) {
	for r := range keyKind.all(&s.view.Load().records) {
		s.review(r.live, now)
		s.notify(r, last, now)
	}
}

// notify notifies subscribers if a key has expired after last, or if a notice of that was due since.
func (s *Store) notify(r *keyRecord, last, now time.Time) {
	passed := func(t time.Time) bool { return t.After(last) && !t.After(now) }
	if r.RevokedAt != nil || r.ExpiresAt == nil {
		return
	}
	c := Change{
		Kind: KindKey, Account: r.Account, ID: r.ID, Name: r.Name, State: r.state(), Was: r.state(),
		Revision: r.revision,
	}
	if passed(*r.ExpiresAt) {
		c.State = KeyExpired
	} else {
		for _, notice := range expiryNotices {
			if passed(r.ExpiresAt.Add(-notice)) {
				c.Expiring = notice
			}
		}
	}
	if c.State == KeyExpired || c.Expiring > 0 {
		s.report(s.subscribers.Now(), c)
	}
}
