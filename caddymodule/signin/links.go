package signin

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/caddymodule/store"
)

// linkLife is how long links are valid. Setup and recovery links are used right away,
// invitations are sent to others.
var linkLife = map[string]time.Duration{
	store.LinkSetup:      15 * time.Minute,
	store.LinkInvitation: 3 * 24 * time.Hour,
	store.LinkRecovery:   15 * time.Minute,
}

// CreateLink creates a link of a kind, see [store.Store.CreateLink]. While signing in by password is off, only the
// operator creates links, for recovery.
func (s *Service) CreateLink(ctx context.Context, l store.Link) (store.Link, string, error) {
	if _, byUser := s.store.User(l.CreatedBy); byUser || l.Kind != store.LinkRecovery {
		if err := s.Local(); err != nil {
			return store.Link{}, "", err
		}
	}
	return s.store.CreateLink(ctx, l, linkLife[l.Kind])
}

// Link returns the valid link with this secret. It returns ErrLink, a
// *ThrottledError, or an error of the store.
func (s *Service) Link(ctx context.Context, address, secret string) (store.Link, error) {
	client := fair.Parse(address)
	if err := s.guard.checkAddress(client, s.now()); err != nil {
		return store.Link{}, err
	}
	link, err := s.store.FindLink(secret)
	if errors.Is(err, store.ErrNotFound) {
		if err = s.store.Refresh(ctx); err == nil {
			link, err = s.store.FindLink(secret)
		}
	}
	if err != nil {
		return store.Link{}, s.linkFailure(address, err)
	}
	return link, nil
}

// linkFailure counts and logs the use of an invalid link, and returns an error for
// the user.
func (s *Service) linkFailure(address string, err error) error {
	switch {
	case errors.Is(err, store.ErrExpired):
		err = store.Errorf(ErrLink, "this link has expired: ask for a new one")
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrUsed):
		err = store.Errorf(ErrLink, "this link does not work: it was already used, was replaced by a newer one, or is "+
			"incomplete. Ask for a new one")
	default:
		return err
	}
	s.guard.addressFailed(fair.Parse(address), s.now())
	s.logFailure(address, MethodLink, err.Error())
	return err
}

// Redeem consumes a link and signs its user in: a new user called a.Name, or the
// user of a recovery link. The password becomes a.Password. It returns ErrLink,
// ErrPassword, ErrBusy, a *ThrottledError, or an error of the store. The link stays
// valid after all errors except ErrLink and [store.ErrUnconfirmed], with which the user is
// signed in. While signing in by password is off, no password is set, and the session is short.
func (s *Service) Redeem(ctx context.Context, a Attempt, secret string) (Signed, error) {
	l, err := s.Link(ctx, a.Address, secret)
	if err != nil {
		return Signed{}, err
	}
	if s.Local() != nil {
		session, cookie, err := s.store.SignInByLink(ctx, secret, remote(a.Address), a.UserAgent)
		if !store.Committed(err) {
			return Signed{}, s.linkFailure(a.Address, err)
		}
		user, _ := s.store.User(session.User)
		s.log.Info("signed in", "user_id", user.ID, "account_id", user.Account, "method", session.Method, "link_id", l.ID)
		return Signed{User: user, Session: session, Secret: cookie}, err
	}
	if l.Kind == store.LinkRecovery {
		user, ok := s.store.User(l.User)
		if !ok {
			return Signed{}, store.Errorf(ErrLink, "this link does not work: its user was removed")
		}
		a.Name = user.Name
	}
	if err := checkPassword(a.Name, a.Password); err != nil {
		return Signed{}, err
	}
	hash, err := s.hash(ctx, a.Password)
	if err != nil {
		return Signed{}, err
	}
	user, unconfirmed := s.store.RedeemLink(ctx, secret, a.Name, hash, a.End)
	if !store.Committed(unconfirmed) {
		return Signed{}, s.linkFailure(a.Address, unconfirmed)
	}
	s.guard.succeeded(fair.Parse(a.Address), nameKey(user.Name))
	s.log.Info("link redeemed", "link_id", l.ID, "kind", l.Kind, "user_id", user.ID, "account_id", user.Account,
		"ends_passkeys", a.End.Passkeys, "ends_tokens", a.End.Tokens)
	signed, err := s.beginSession(ctx, user, MethodLink, a)
	return signed, cmp.Or(err, unconfirmed)
}
