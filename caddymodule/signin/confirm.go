package signin

import (
	"context"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/caddymodule/store"
)

// ConfirmedFor is how long after a password or a passkey a session may grant or
// revoke access permanently.
const ConfirmedFor = 5 * time.Minute

// Confirm records that the user of a session knows the password, and returns the
// updated session. It returns ErrCredentials, ErrBusy, a *ThrottledError, or an error
// of the store.
func (s *Service) Confirm(ctx context.Context, session store.Session, password string) (store.Session, error) {
	if err := s.Local(); err != nil {
		return store.Session{}, err
	}
	user, ok := s.store.User(session.User)
	if !ok {
		return store.Session{}, store.Errorf(store.ErrNotFound, "the user was removed")
	}
	if _, err := s.checkCurrent(ctx, user, password); err != nil {
		return store.Session{}, err
	}
	return s.confirm(ctx, session, MethodPassword)
}

// ConfirmByPasskey is Confirm for the answer to [Service.BeginPasskeySignIn]. It
// returns ErrPasskey, a *ThrottledError, or an error of the store.
func (s *Service) ConfirmByPasskey(ctx context.Context, session store.Session,
	address, origin, ceremonyID string, response []byte,
) (store.Session, error) {
	if err := s.guard.checkAddress(fair.Parse(address), s.now()); err != nil {
		return store.Session{}, err
	}
	user, _, err := s.assert(ctx, origin, ceremonyID, response)
	if err == nil && user.ID != session.User {
		err = store.Errorf(ErrPasskey, "this passkey belongs to another user: use one of yours")
	}
	if err != nil {
		return store.Session{}, s.passkeyFailure(Attempt{Address: address}, err)
	}
	return s.confirm(ctx, session, MethodPasskey)
}

func (s *Service) confirm(ctx context.Context, session store.Session, method string) (store.Session, error) {
	session, err := s.store.ConfirmSession(ctx, session)
	if err == nil {
		s.log.Info("session confirmed", "user_id", session.User, "session_id", session.ID, "method", method)
	}
	return session, err
}
