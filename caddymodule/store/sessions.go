package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/postern-dev/postern/connector/text"
)

type sessionRecord struct {
	header
	Session
	Epoch int64  `json:"epoch,omitempty"` // of the user
	Hash  digest `json:"hash"`
}

func (r *sessionRecord) place() key   { return key{r.User, r.ID} }
func (r *sessionRecord) check() error { return checkHash(r.Hash) }

var sessionKind = &kind[sessionRecord, *sessionRecord]{
	dir: dirSessions, prefix: prefixSession, seenAt: dirSessionsSeen,
	in:    func(r *records) *collection[*sessionRecord] { return &r.sessions },
	index: func(r *sessionRecord) digest { return r.Hash },
	change: func(_ *records, r *sessionRecord) Change {
		return Change{Kind: KindSession, Account: r.Account, ID: r.ID, Name: r.User}
	},
	adopt: func(_ *draft, _, next *sessionRecord) { next.use.load(next.SeenAt) },
}

// maxSessions bounds the sessions of a user: a program that signs in for each of
// its requests leaves one each time.
const maxSessions = 200

// CreateSession makes a session of a user and returns it with its secret,
// which cannot be shown again. Of too many sessions those end that were not used
// for the longest.
func (s *Store) CreateSession(ctx context.Context, userID, method, address, userAgent string) (Session, string, error) {
	secret, hash := newSecret("")
	now := s.time()
	r := &sessionRecord{Hash: hash, Session: Session{
		ID: newID(prefixSession, s.now()), User: userID, CreatedAt: now, SeenAt: now, ExpiresAt: now.Add(SessionLife), ConfirmedAt: now,
		Method: text.Printable(method, 64), Address: text.Printable(address, 64), UserAgent: text.Printable(userAgent, 256),
	}}
	err := s.update(ctx, "creating the session", func(t *tx) error {
		u, err := loadUser(t, userID)
		if err != nil {
			return err
		}
		r.Account, r.Epoch = u.Account, u.Epoch
		for _, old := range s.surplus(userID) {
			sessionKind.remove(t, userID, old.ID)
		}
		sessionKind.create(t, r)
		return nil
	})
	if err != nil {
		return Session{}, "", err
	}
	return r.Session, secret, nil
}

// surplus returns the sessions of a user that have to make room for another one.
// It is some of them if there are far too many: those made at once may find the
// same ones.
func (s *Store) surplus(userID string) []Session {
	const atOnce = 16
	sessions := s.Sessions(userID)
	n := min(len(sessions)-maxSessions+1, atOnce)
	if n <= 0 {
		return nil
	}
	slices.SortStableFunc(sessions, func(a, b Session) int { return a.SeenAt.Compare(b.SeenAt) })
	return sessions[:n]
}

// FindSession returns the session with this secret, if it has not ended. It
// takes no lock and allocates nothing.
func (s *Store) FindSession(secret string) (Session, bool) {
	v := s.view.Load()
	r, ok := find(&v.sessions, "", secret)
	if !ok {
		return Session{}, false
	}
	return v.session(r, s.now())
}

// session returns the session as it is now, if it has not ended.
func (v *view) session(r *sessionRecord, now time.Time) (Session, bool) {
	u, ok := v.user(r.User)
	session := r.Session
	session.SeenAt = r.use.time()
	return session, ok && u.Epoch == r.Epoch && !session.ended(now)
}

// ended reports whether the session can no longer be used.
func (s Session) ended(now time.Time) bool {
	return !now.Before(s.ExpiresAt) || !now.Before(s.SeenAt.Add(SessionIdle))
}

// TouchSession notes that a session was just used. As with Touch, the time is
// written later, and of one session not more often than once a minute. A
// killed process loses the last one.
func (s *Store) TouchSession(session Session) {
	if r, ok := s.view.Load().sessions.named(session.ID); ok {
		s.touch(r.use, saveRest)
	}
}

// ConfirmSession notes that the user of a session has just given a password or a
// passkey in it, and returns the session as it is now. It fails with ErrNotFound
// if the session has been removed.
func (s *Store) ConfirmSession(ctx context.Context, session Session) (Session, error) {
	now := s.time()
	return update(ctx, s, "confirming the session", func(t *tx) (Session, error) {
		r := sessionKind.load(t, session.User, session.ID)
		if r == nil {
			return Session{}, Errorf(ErrNotFound, "the session has ended: sign in again")
		}
		r.ConfirmedAt = now
		sessionKind.save(t, r)
		session.ConfirmedAt = now
		return session, nil
	})
}

// Sessions returns the sessions of a user that have not ended, in the order of
// their creation.
func (s *Store) Sessions(userID string) []Session {
	v, now := s.view.Load(), s.now()
	return list(&v.sessions, userID, func(r *sessionRecord) (Session, bool) { return v.session(r, now) })
}

// RemoveSession ends a session of a user.
func (s *Store) RemoveSession(ctx context.Context, userID, id string) error {
	_, err := sessionKind.take(ctx, s, "ending the session", userID, id, Errorf(ErrNotFound, "there is no such session: it has ended already"))
	return err
}

// RemoveSessions ends all sessions of a user but exceptID, if that is not "",
// and returns how many those were.
func (s *Store) RemoveSessions(ctx context.Context, userID, exceptID string) (int, error) {
	if !checkID(prefixUser, userID) {
		return 0, errNoUser()
	}
	ended, now := 0, s.now()
	err := s.dropSessions(ctx, userID, func(r *sessionRecord) bool {
		if r.ID == exceptID {
			return false
		}
		v := s.view.Load()
		if known, ok := v.sessions.named(r.ID); ok {
			if _, valid := v.session(known, now); valid {
				ended++
			}
		}
		return true
	})
	if err != nil {
		return 0, fmt.Errorf("ending the sessions: %w", err)
	}
	return ended, nil
}

// dropSessions removes the sessions of a user that which chooses.
func (s *Store) dropSessions(ctx context.Context, userID string, which func(*sessionRecord) bool) error {
	items, err := s.items(ctx, sessionKind.span(userID))
	if err != nil {
		return err
	}
	var keys []string
	for _, item := range items {
		r, err := sessionKind.decode(item)
		if err != nil {
			return err
		}
		if which(r) {
			keys = append(keys, item.Key, sessionKind.usePath(userID, r.ID))
		}
	}
	return s.drop(ctx, keys)
}
