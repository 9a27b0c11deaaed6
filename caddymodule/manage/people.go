package manage

import (
	"context"
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/signin"
	"github.com/postern-dev/postern/caddymodule/store"
)

// User is a user of the console as it is listed.
type User struct {
	store.User
	// Passkeys counts the user's.
	Passkeys int `json:"passkeys"`
}

// AddUser asks for a new user.
type AddUser struct {
	Name     string `json:"name" need:"required"` // unique over the gateway
	Password string `json:"password" need:"required"`
	Account  string `json:"account"`
}

// Link is a one-time link for the console. The URL is known only when the link
// is made: it has the secret.
type Link struct {
	store.Link
	URL string `json:"url,omitempty"`
}

// Users lists the users of an account.
func (s *Service) Users(account string) ([]User, error) {
	return list(s, account, s.store.Users, s.userOf)
}

// AddUser makes a user with a password that another person has chosen. An
// invitation lets people choose their own.
func (s *Service) AddUser(ctx context.Context, a AddUser) (User, error) {
	signIn, err := s.signInService()
	if err != nil {
		return User{}, err
	}
	return change(ctx, s, a.Account, func(account string) (User, write, error) {
		if err := s.mayLetIn(ctx); err != nil {
			return User{}, write{}, err
		}
		u, err := signIn.AddUser(ctx, account, a.Name, a.Password)
		return s.userOf(u), write{"user.add", u.ID, u.Name, nil}, err
	})
}

// RemoveUser removes a user by id or name, with all that lets the user in.
// Users cannot remove themselves, so that an account keeps one; operators can
// remove all.
func (s *Service) RemoveUser(ctx context.Context, account, idOrName string) (User, error) {
	account, err := s.accountOfPerson(ctx, account)
	if err != nil {
		return User{}, err
	}
	// One after the other, or else two users who remove each other would both
	// be there when that is checked.
	s.removing.Lock()
	defer s.removing.Unlock()
	u, err := s.user(account, idOrName)
	if err != nil {
		return User{}, err
	}
	if caller := CallerFrom(ctx); !caller.Operator {
		if _, ok := s.store.User(caller.User); !ok {
			return User{}, faultf(ErrForbidden, "you have been removed yourself")
		}
		if u.ID == caller.User {
			return User{}, faultf(ErrForbidden, "you cannot remove yourself; ask another user of the account, or the operator of the gateway")
		}
	}
	removed := s.userOf(u)
	if _, err := s.store.RemoveUser(ctx, account, u.ID); err != nil {
		return User{}, err
	}
	s.audit(ctx, "user.remove", account, u.ID, u.Name)
	return removed, nil
}

// SetupLink makes the link that makes the first user. It ends those before.
func (s *Service) SetupLink(ctx context.Context) (Link, error) {
	if err := operator(ctx); err != nil {
		return Link{}, err
	}
	return s.makeLink(ctx, "setup", func(signIn *signin.Service) (store.Link, string, error) {
		return signIn.SetupLink(ctx)
	})
}

// Invite makes a link that makes a person a user of the account.
func (s *Service) Invite(ctx context.Context, account string) (Link, error) {
	account, err := s.accountOfPerson(ctx, account)
	if err != nil {
		return Link{}, err
	}
	return s.makeLink(ctx, "join", func(signIn *signin.Service) (store.Link, string, error) {
		return signIn.Invite(ctx, account, CallerFrom(ctx).maker())
	})
}

// RecoveryLink makes a link with which another user, by id or name, sets a new
// password. Users make none for themselves: they change the password, which asks
// for the present one.
func (s *Service) RecoveryLink(ctx context.Context, account, idOrName string) (Link, error) {
	account, err := s.accountOfPerson(ctx, account)
	if err != nil {
		return Link{}, err
	}
	u, err := s.user(account, idOrName)
	if err != nil {
		return Link{}, err
	}
	if u.ID == CallerFrom(ctx).User {
		return Link{}, faultf(ErrForbidden, "you cannot make a link for a new password of your own; change the password in the console under Settings, "+
			"or have another user make the link, or `caddy gateway user recovery-link`")
	}
	return s.makeLink(ctx, "recover", func(signIn *signin.Service) (store.Link, string, error) {
		return signIn.RecoveryLink(ctx, account, u.ID, CallerFrom(ctx).maker())
	})
}

// Invitations lists the invitations of an account that can still be taken up.
func (s *Service) Invitations(account string) ([]Link, error) {
	account, err := s.known(account)
	if err != nil {
		return nil, err
	}
	links := []Link{}
	for _, l := range s.store.Links(account) {
		if l.Kind == store.LinkInvitation && s.now().Before(l.ExpiresAt) {
			links = append(links, Link{Link: l})
		}
	}
	return links, nil
}

// RevokeInvitation makes an invitation invalid.
func (s *Service) RevokeInvitation(ctx context.Context, account, id string) (Link, error) {
	return change(ctx, s, account, func(account string) (Link, write, error) {
		links, err := s.Invitations(account)
		if err != nil {
			return Link{}, write{}, err
		}
		i := slices.IndexFunc(links, func(l Link) bool { return l.ID == id })
		if i < 0 {
			return Link{}, write{}, faultf(store.ErrNotFound, "there is no open invitation %q: it was taken up or revoked, or has run out", id)
		}
		return links[i], write{"link.revoke", id, "", []any{"kind", links[i].Kind}}, s.store.RemoveLink(ctx, account, id)
	})
}

// makeLink makes a link to a page of the console. The secret stands in the
// fragment, which browsers do not send: no log of a server has it.
func (s *Service) makeLink(ctx context.Context, page string, create func(*signin.Service) (store.Link, string, error)) (Link, error) {
	signIn, err := s.signInService()
	if err != nil {
		return Link{}, err
	}
	at := s.endpoint()
	base := at.Console
	if at.Exposed {
		return Link{}, faultf(ErrNotReady, "the console at %s is served over plain HTTP, so that a link and the password would be readable on the way; "+
			"serve it over HTTPS, or, if something in front of it does, name its host with `public`; `caddy gateway user add` makes users without a link", base)
	}
	if base == "" {
		return Link{}, faultf(ErrNotReady, "the address of the console is not known, as the Caddyfile has no site with `model_console` and a host name, or several; "+
			"if it has several, name one with `public`, and run `caddy reload`; `caddy gateway user add` makes users without a link")
	}
	l, secret, err := create(signIn)
	if err != nil {
		return Link{}, err
	}
	s.audit(ctx, "link.create", l.Account, l.ID, "", "kind", l.Kind, "user", l.User)
	return Link{Link: l, URL: strings.TrimSuffix(base, "/") + "/" + page + "#" + secret}, nil
}

func (s *Service) signInService() (*signin.Service, error) {
	if s.signIn == nil {
		return nil, faultf(ErrNotReady, "this gateway has no users")
	}
	return s.signIn, nil
}

// user finds a user of the account by id, then by name in any letter case.
func (s *Service) user(account, idOrName string) (store.User, error) {
	if u, ok := s.store.User(idOrName); ok && u.Account == account {
		return u, nil
	}
	if u, ok := s.store.FindUser(idOrName); ok && u.Account == account {
		return u, nil
	}
	return store.User{}, faultf(store.ErrNotFound, "there is no user %q in account %q", idOrName, account)
}

func (s *Service) userOf(u store.User) User {
	return User{User: u, Passkeys: len(s.store.Passkeys(u.ID))}
}
