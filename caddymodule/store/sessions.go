package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// maxSessions bounds the sessions of a user: a program that signs in for each of
// its requests leaves one each time.
const maxSessions = 200

// CreateSession makes a session of a user and returns it with its secret,
// which cannot be had again. Of too many sessions those end that were not used
// for the longest.
func (s *Store) CreateSession(ctx context.Context, userID, method, address, userAgent string) (Session, string, error) {
	secret := newSecret("")
	hash, _ := hashSecret("", secret)
	now := s.time()
	r := sessionRecord{version: version{recordVersion}, Hash: hexDigest(hash), Session: Session{
		ID: newID(prefixSession, s.now()), User: userID, CreatedAt: now, SeenAt: now, ExpiresAt: now.Add(SessionLife), ConfirmedAt: now,
		Method: cleanLabel(method, 64), Address: cleanLabel(address, 64), UserAgent: cleanLabel(userAgent, 256),
	}}
	err := s.update(ctx, func() (Txn, error) {
		item, u, err := s.user(ctx, userID)
		if err != nil {
			return Txn{}, err
		}
		r.Account, r.Epoch = u.Account, u.Epoch
		t := Txn{If: []Compare{unchanged(item), {Key: sessionPath(userID, r.ID)}}}
		for _, old := range s.surplus(userID) {
			t.Then = append(t.Then, Delete(sessionPath(userID, old.ID)), Delete(sessionSeenPath(userID, old.ID)))
		}
		return t.put(put{sessionPath(userID, r.ID), r})
	})
	if err != nil {
		return Session{}, "", fmt.Errorf("creating the session: %w", err)
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
	hash, ok := hashSecret("", secret)
	if !ok {
		return Session{}, false
	}
	v := s.view.Load()
	e, ok := v.sessionsByHash.get(hash)
	if !ok {
		return Session{}, false
	}
	return v.session(e, s.now())
}

// session returns the session as it is now, if it has not ended.
func (v *view) session(e *sessionEntry, now time.Time) (Session, bool) {
	u, ok := v.users.get(e.session.User)
	session := e.current()
	return session, ok && u.Epoch == e.epoch && !session.ended(now)
}

// ended reports whether nobody can use the session any more.
func (s Session) ended(now time.Time) bool {
	return !now.Before(s.ExpiresAt) || !now.Before(s.SeenAt.Add(SessionIdle))
}

// TouchSession notes that a session was just used. As with Touch, the time is
// written later, and of one session not more often than once a minute. A
// killed process loses the last one.
func (s *Store) TouchSession(session Session) {
	if e, ok := s.view.Load().sessions.get(session.ID); ok {
		s.note(e.use)
	}
}

// ConfirmSession notes that the user of a session has just given a password or a
// passkey in it, and returns the session as it is now. It fails with ErrNotFound
// if the session has been removed.
func (s *Store) ConfirmSession(ctx context.Context, session Session) (Session, error) {
	now := s.time()
	path := sessionPath(session.User, session.ID)
	err := s.update(ctx, func() (Txn, error) {
		item, err := s.kv.Get(ctx, path)
		if err != nil {
			return Txn{}, err
		}
		if !item.Exists() {
			return Txn{}, fail(ErrNotFound, "the session has ended: sign in again")
		}
		r, err := decodeSession(item)
		if err != nil {
			return Txn{}, err
		}
		r.ConfirmedAt = now
		return Txn{If: []Compare{unchanged(item)}}.put(put{path, r})
	})
	if err != nil {
		return Session{}, fmt.Errorf("confirming the session: %w", err)
	}
	session.ConfirmedAt = now
	return session, nil
}

// Sessions returns the sessions of a user that have not ended, in the order of
// their creation.
func (s *Store) Sessions(userID string) []Session {
	var out []Session
	v, now := s.view.Load(), s.now()
	for _, e := range v.sessions.all() {
		if e.session.User != userID {
			continue
		}
		if session, ok := v.session(e, now); ok {
			out = append(out, session)
		}
	}
	slices.SortFunc(out, func(a, b Session) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// RemoveSession ends a session of a user.
func (s *Store) RemoveSession(ctx context.Context, userID, id string) error {
	unknown := fail(ErrNotFound, "there is no such session: it has ended already")
	if !checkID(prefixUser, userID) || !checkID(prefixSession, id) {
		return unknown
	}
	err := s.update(ctx, func() (Txn, error) {
		item, err := s.kv.Get(ctx, sessionPath(userID, id))
		if err != nil {
			return Txn{}, err
		}
		if !item.Exists() {
			return Txn{}, unknown
		}
		return Txn{If: []Compare{unchanged(item)}, Then: []Op{Delete(item.Key), Delete(sessionSeenPath(userID, id))}}, nil
	})
	if err != nil {
		return fmt.Errorf("ending the session: %w", err)
	}
	return nil
}

// RemoveSessions ends all sessions of a user but exceptID, if that is not "",
// and returns how many those were.
func (s *Store) RemoveSessions(ctx context.Context, userID, exceptID string) (int, error) {
	if !checkID(prefixUser, userID) {
		return 0, fail(ErrNotFound, "there is no such user: it was removed")
	}
	ended, now := 0, s.now()
	err := s.dropSessions(ctx, userID, func(r sessionRecord) bool {
		if r.ID == exceptID {
			return false
		}
		v := s.view.Load()
		if e, ok := v.sessions.get(r.ID); ok {
			if _, valid := v.session(e, now); valid {
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
func (s *Store) dropSessions(ctx context.Context, userID string, which func(sessionRecord) bool) error {
	snap, err := s.kv.Range(ctx, Prefix(sessionPath(userID, "")))
	if err != nil {
		return err
	}
	var keys []string
	for _, item := range snap.Items {
		r, err := decodeSession(item)
		if err != nil {
			return err
		}
		if which(r) {
			keys = append(keys, item.Key, sessionSeenPath(userID, r.ID))
		}
	}
	return s.drop(ctx, keys)
}
