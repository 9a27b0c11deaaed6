package manage

import (
	"context"

	"github.com/postern-dev/postern/caddymodule/store"
)

// Session is one of the caller's sessions.
type Session struct {
	store.Session
	// Current: the request is from this session.
	Current bool `json:"current"`
}

// Sessions lists the caller's own sessions.
func (s *Service) Sessions(ctx context.Context) ([]Session, error) {
	caller, err := s.signedIn(ctx)
	if err != nil {
		return nil, err
	}
	sessions := []Session{}
	for _, o := range s.store.Sessions(caller.User) {
		sessions = append(sessions, Session{Session: o, Current: o.ID == caller.Session})
	}
	return sessions, nil
}

// RevokeSession ends one of the caller's own sessions, which may be the current
// one.
func (s *Service) RevokeSession(ctx context.Context, id string) (Session, error) {
	sessions, err := s.Sessions(ctx)
	if err != nil {
		return Session{}, err
	}
	o, ok := find(sessions, func(o Session) bool { return o.ID == id })
	if !ok {
		return Session{}, faultf(store.ErrNotFound, "you have no session %q; it may have expired", id)
	}
	caller := CallerFrom(ctx)
	if err = s.store.RemoveSession(ctx, caller.User, id); !store.Committed(err) {
		return Session{}, err
	}
	s.audit(ctx, "session.revoke", caller.Account, id, "")
	return o, err
}

// EndedSessions is the answer to [Service.RevokeSessions].
type EndedSessions struct {
	Ended int `json:"ended"`
}

// RevokeSessions ends the caller's own sessions except the current one.
func (s *Service) RevokeSessions(ctx context.Context) (EndedSessions, error) {
	caller, err := s.signedIn(ctx)
	if err != nil {
		return EndedSessions{}, err
	}
	n, err := s.store.RemoveSessions(ctx, caller.User, caller.Session)
	if !store.Committed(err) {
		return EndedSessions{}, err
	}
	s.audit(ctx, "session.revoke_others", caller.Account, caller.User, "", "sessions", n)
	return EndedSessions{n}, err
}

// ConfirmSession contains the password of the caller.
type ConfirmSession struct {
	Password string `json:"password" need:"required" flag:"-" help:"The password of the user of the session"`
}

// ConfirmSession checks the password of the caller and confirms the session for
// [signin.ConfirmedFor].
func (s *Service) ConfirmSession(ctx context.Context, c ConfirmSession) (Session, error) {
	sessions, err := s.Sessions(ctx)
	if err != nil {
		return Session{}, err
	}
	o, ok := find(sessions, func(o Session) bool { return o.Current })
	if !ok {
		return Session{}, faultf(ErrForbidden,
			"only a session can be confirmed, not a management token; sign in to the console")
	}
	confirmed, err := s.signIn.Confirm(ctx, o.Session, c.Password)
	if err != nil {
		return Session{}, err
	}
	s.audit(ctx, "session.confirm", confirmed.Account, confirmed.ID, "")
	return Session{Session: confirmed, Current: true}, nil
}

// signedIn returns the caller if it is a user.
func (s *Service) signedIn(ctx context.Context) (Caller, error) {
	caller := CallerFrom(ctx)
	if caller.User == "" {
		return Caller{}, faultf(ErrForbidden, "only users have sessions; sign in to the console")
	}
	_, err := s.account(ctx)
	return caller, err
}
