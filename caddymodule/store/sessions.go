package store

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/postern-dev/postern/connector/text"
)

// Sessions expire SessionIdle after their last use, and SessionLife after their creation.
const (
	SessionIdle = 12 * time.Hour
	SessionLife = 7 * 24 * time.Hour
)

// Session is a browser in which a user has signed in.
type Session struct {
	ID        string    `json:"id"`
	User      string    `json:"user"` // id
	Account   string    `json:"account"`
	Address   string    `json:"address"`
	UserAgent string    `json:"user_agent"`
	Method    string    `json:"method"` // of signing in
	CreatedAt time.Time `json:"created_at"`
	SeenAt    time.Time `json:"seen_at"` // last request
	ExpiresAt time.Time `json:"expires_at"`
	// ConfirmedAt is when the user last entered a password, used a passkey or signed in to the issuer again; zero: never.
	ConfirmedAt time.Time `json:"confirmed_at,omitzero"`
	// Issuer is the URL of the issuer that the user has signed in by, "" for the other methods.
	Issuer string `json:"issuer,omitempty"`
}

type sessionRecord struct {
	header
	Session
	Epoch int64  `json:"epoch,omitempty"` // of the user
	Hash  digest `json:"hash"`
}

func (r *sessionRecord) key() recordKey { return recordKey{r.User, r.ID} }
func (r *sessionRecord) check() error   { return checkHash(r.Hash) }

var sessionKind = &kind[sessionRecord, *sessionRecord]{
	dir: "sessions/", prefix: prefixSession, seenAt: "sessions_seen/", what: KindSession,
	collection: func(r *records) *collection[*sessionRecord] { return &r.sessions },
	index:      func(r *sessionRecord) digest { return r.Hash },
	amend:      func(_ *records, r *sessionRecord, c *Change) { c.Account = r.Account },
	adopt:      func(_ *draft, _, next *sessionRecord) { next.use.load(next.SeenAt) },
}

// maxSessions bounds the sessions of a user: a script may sign in for each request.
const maxSessions = 200

// CreateSession creates a session of a user and returns it with its secret, which is not
// shown again. If the user has too many sessions, the least recently used ones end.
func (s *Store) CreateSession(ctx context.Context, userID, method, address, userAgent string) (Session, string, error) {
	r, secret := s.newSession(method, address, userAgent, SessionLife)
	session, err := update(ctx, s, "creating the session", func(t *tx) (Session, error) {
		u, err := loadUser(t, userID)
		if err != nil {
			return Session{}, err
		}
		return addSession(t, u, r), nil
	})
	return session, secret, err
}

// newSession returns the record of a new session, which does not have a user yet, and its secret.
func (s *Store) newSession(method, address, userAgent string, life time.Duration) (*sessionRecord, string) {
	secret, hash := newSecret("")
	now := s.time()
	return &sessionRecord{Hash: hash, Session: Session{
		ID: newID(prefixSession, s.now()), CreatedAt: now, SeenAt: now, ExpiresAt: now.Add(min(life, SessionLife)),
		ConfirmedAt: now,
		Method:      text.Printable(method, 64), Address: text.Printable(address, 64),
		UserAgent: text.Printable(userAgent, 256),
	}}, secret
}

// addSession adds a session of a user, and ends surplus ones.
func addSession(t *tx, u *userRecord, r *sessionRecord) Session {
	r.User, r.Account, r.Epoch = u.ID, u.Account, u.Epoch
	for _, old := range t.s.surplus(u.ID) {
		sessionKind.remove(t, u.ID, old.ID)
	}
	sessionKind.create(t, r)
	return r.Session
}

// surplus returns the sessions of a user that must end for a new one. After concurrent
// sign-ins there may be more than one write can end; then it returns some of them.
func (s *Store) surplus(userID string) []Session {
	const maxEnded = 16
	sessions := s.Sessions(userID)
	n := min(len(sessions)-maxSessions+1, maxEnded)
	if n <= 0 {
		return nil
	}
	slices.SortStableFunc(sessions, func(a, b Session) int { return a.SeenAt.Compare(b.SeenAt) })
	return sessions[:n]
}

// FindSession returns the valid session with this secret. It takes no lock and allocates
// nothing.
func (s *Store) FindSession(secret string) (Session, bool) {
	v := s.view.Load()
	r, ok := sessionKind.bySecret(v, secret)
	if !ok {
		return Session{}, false
	}
	return s.session(v, r, s.now())
}

// session returns the current state of a session, false if it has ended.
func (s *Store) session(v *view, r *sessionRecord, now time.Time) (Session, bool) {
	u, ok := userKind.byID(v, r.User)
	session := r.current()
	return session, ok && u.Epoch == r.Epoch && !session.ended(now) && s.policy.Load().admits(&r.Session, now)
}

// current returns the session with its last use.
func (r *sessionRecord) current() Session {
	session := r.Session
	session.SeenAt = r.use.time()
	return session
}

// ended reports whether the session can no longer be used.
func (s Session) ended(now time.Time) bool {
	return !now.Before(s.ExpiresAt) || !now.Before(s.SeenAt.Add(SessionIdle))
}

// TouchSession records that a session was just used. As with Touch, times are written
// later, and at most once a minute per session. A killed process loses the last one.
func (s *Store) TouchSession(session Session) { sessionKind.touch(s, session.ID) }

// ConfirmSession records that the user of a session has just entered a password or used a
// passkey, and returns the updated session. It fails with ErrNotFound if the session has
// ended.
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

// Sessions returns the valid sessions of a user in order of creation.
func (s *Store) Sessions(userID string) []Session {
	v, now := s.view.Load(), s.now()
	return list(sessionKind.owned(v, userID), func(r *sessionRecord) (Session, bool) { return s.session(v, r, now) })
}

// RemoveSession ends a session of a user.
func (s *Store) RemoveSession(ctx context.Context, userID, id string) error {
	_, err := sessionKind.removeRecord(ctx, s, "ending the session", userID, id,
		Errorf(ErrNotFound, "the session was not found: it has already ended"))
	return err
}

// RemoveSessions ends all sessions of a user except exceptID, if that is not "", and
// returns their number.
func (s *Store) RemoveSessions(ctx context.Context, userID, exceptID string) (int, error) {
	if !checkID(prefixUser, userID) {
		return 0, errNoUser
	}
	if err := s.CatchUp(ctx); err != nil {
		return 0, fmt.Errorf("ending the sessions: %w", err)
	}
	v, sessions := s.view.Load(), s.Sessions(userID)
	ended := len(slices.DeleteFunc(sessions, func(o Session) bool { return o.ID == exceptID }))
	if err := s.deleteAll(ctx, v.sessionsOf(userID, exceptID), (*tx).confirmed); err != nil {
		return ended, fmt.Errorf("ending the sessions: %w", err)
	}
	return ended, nil
}

// endSessions ends the sessions that selected selects.
func (s *Store) endSessions(ctx context.Context, all iter.Seq[*sessionRecord], selected func(*Session) bool) error {
	var paths []string
	for r := range all {
		if selected(&r.Session) {
			paths = append(paths, sessionKind.paths(r.key())...)
		}
	}
	return s.deleteAll(ctx, paths, (*tx).confirmed)
}

// sessionsOf returns the KV keys of all sessions of a user except exceptID.
func (v *view) sessionsOf(userID, exceptID string) []string {
	var paths []string
	for r := range sessionKind.owned(v, userID) {
		if r.ID != exceptID {
			paths = append(paths, sessionKind.paths(r.key())...)
		}
	}
	return paths
}
