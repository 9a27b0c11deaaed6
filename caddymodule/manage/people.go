package manage

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// User is a listed user of the console.
type User struct {
	store.User
	// Passkeys counts the passkeys of the user.
	Passkeys int `json:"passkeys" column:"PASSKEYS"`
	// Identities are those with which the user signs in by an issuer.
	Identities []store.UserIdentity `json:"identities,omitempty"`
	// SuspendedFrom is when the keys and management tokens of the user are suspended, unless the user signs in by an
	// issuer; absent: never.
	SuspendedFrom time.Time `json:"suspended_from,omitzero"`
}

// AddUser asks for a new user.
type AddUser struct {
	Name     string `json:"name" need:"required" flag:"-" help:"A name that no other user of the gateway has"`
	Password string `json:"password" need:"required" flag:"-" help:"10 to 128 characters"`
	Role     string `json:"role" need:"filled" default:"admin" help:"What the user may do: admin, member or viewer"`
}

// Link is a one-time link for the console. The URL contains the secret and is only in
// the answer that creates the link.
type Link struct {
	store.Link
	URL string `json:"url,omitempty"`
}

// Users lists the users of the account.
func (s *Service) Users(ctx context.Context) ([]User, error) {
	return list(ctx, s, s.store.Users, s.userOf)
}

// AddUser creates a user with a given password. Invited users choose it themselves.
func (s *Service) AddUser(ctx context.Context, a AddUser) (User, error) {
	return change(ctx, s, func(account string) (User, write, error) {
		if err := s.mayManagePeople(ctx); err != nil {
			return User{}, write{}, err
		}
		u, err := s.signIn.AddUser(ctx, account, a.Name, a.Password, store.Role(a.Role))
		return s.userOf(u), write{"user.add", u.ID, u.Name, []any{"role", u.Role}}, err
	})
}

// SetUser changes a user.
type SetUser struct {
	User string `json:"-" path:"record"`
	Role string `json:"role" need:"required" help:"What the user may do: admin, member or viewer"`
}

// SetUser changes the role of a user, by id or name. It is in force when SetUser returns. The last
// admin of an account stays one.
func (s *Service) SetUser(ctx context.Context, u SetUser) (User, error) {
	return change(ctx, s, func(account string) (User, write, error) {
		if err := s.mayManagePeople(ctx); err != nil {
			return User{}, write{}, err
		}
		role, err := store.ParseRole(u.Role)
		if err != nil {
			return User{}, write{}, err
		}
		changed, err := s.store.SetUserRole(ctx, account, u.User, role)
		return s.userOf(changed), write{"user.set", changed.ID, changed.Name, []any{"role", role}}, err
	})
}

// LinkUser names an identity of a user at an issuer.
type LinkUser struct {
	User    string `json:"-" path:"record"`
	Issuer  string `json:"issuer" need:"required" help:"The URL of the issuer, as in the configuration"`
	Subject string `json:"subject" need:"required" help:"The claim sub of the person at the issuer"`
}

// LinkUser lets a person at an issuer sign in as a user, by id or name.
func (s *Service) LinkUser(ctx context.Context, i LinkUser) (User, error) {
	return s.changeIdentity(ctx, "user.link", i, s.store.LinkIdentity)
}

// UnlinkUser undoes [Service.LinkUser], and ends the sessions that the issuer has begun.
func (s *Service) UnlinkUser(ctx context.Context, i LinkUser) (User, error) {
	return s.changeIdentity(ctx, "user.unlink", i, s.store.UnlinkIdentity)
}

func (s *Service) changeIdentity(ctx context.Context, kind string, i LinkUser,
	do func(ctx context.Context, account, idOrName, issuer, subject string) (store.User, error),
) (User, error) {
	return change(ctx, s, func(account string) (User, write, error) {
		u, err := do(ctx, account, i.User, i.Issuer, i.Subject)
		return s.userOf(u), write{kind, u.ID, u.Name, []any{"issuer", i.Issuer, "subject", i.Subject}}, err
	})
}

// KeysNeedSignIn reports whether keys of users who do not sign in by an issuer are suspended.
func (s *Service) KeysNeedSignIn() bool { return s.store.SignInPolicy().KeysNeed > 0 }

// SetupLink creates the link for the first user. Earlier ones become invalid.
func (s *Service) SetupLink(ctx context.Context) (Link, error) {
	if err := operator(ctx); err != nil {
		return Link{}, err
	}
	return s.createLink(ctx, "setup", store.Link{Kind: store.LinkSetup, Account: store.DefaultAccount})
}

// Invite asks for an invitation.
type Invite struct {
	Role string `json:"role" need:"filled" default:"admin" help:"What the user may do: admin, member or viewer"`
}

// Invite creates a link for a new user of the account.
func (s *Service) Invite(ctx context.Context, i Invite) (Link, error) {
	account, err := s.accountForPeople(ctx)
	if err != nil {
		return Link{}, err
	}
	return s.createLink(ctx, "join",
		store.Link{
			Kind: store.LinkInvitation, Account: account, Role: store.Role(i.Role),
			CreatedBy: CallerFrom(ctx).creator(),
		})
}

// RecoveryLink creates a link with which another user, by id or name, sets a new
// password. Users cannot create one for themselves: changing the password asks for
// the current one.
func (s *Service) RecoveryLink(ctx context.Context, idOrName string) (Link, error) {
	account, err := s.accountForPeople(ctx)
	if err != nil {
		return Link{}, err
	}
	u, err := s.user(account, idOrName)
	if err != nil {
		return Link{}, err
	}
	if u.ID == CallerFrom(ctx).User {
		return Link{}, faultf(ErrForbidden,
			"you cannot create a password link for yourself; change your password in the console, under Settings, or ask "+
				"another admin or the operator of the gateway for a link")
	}
	return s.createLink(ctx, "recover",
		store.Link{Kind: store.LinkRecovery, Account: account, User: u.ID, CreatedBy: CallerFrom(ctx).creator()})
}

// Invitations lists the invitations of the account that can still be used.
func (s *Service) Invitations(ctx context.Context) ([]Link, error) {
	links, err := list(ctx, s, s.store.Links, func(l store.Link) Link { return Link{Link: l} })
	return slices.DeleteFunc(links,
		func(l Link) bool { return l.Kind != store.LinkInvitation || !s.now().Before(l.ExpiresAt) }), err
}

// RevokeInvitation makes an invitation invalid.
func (s *Service) RevokeInvitation(ctx context.Context, id string) (Link, error) {
	return change(ctx, s, func(account string) (Link, write, error) {
		links, err := s.Invitations(ctx)
		if err != nil {
			return Link{}, write{}, err
		}
		l, ok := find(links, func(l Link) bool { return l.ID == id })
		if !ok {
			return Link{}, write{}, faultf(store.ErrNotFound,
				"invitation %q not found: it was used or revoked, or has expired", id)
		}
		return l, write{"link.revoke", id, "", []any{"kind", l.Kind}}, s.store.RemoveLink(ctx, account, id)
	})
}

// createLink creates a link to a page of the console. The secret is in the fragment,
// which browsers do not send: it does not appear in server logs.
func (s *Service) createLink(ctx context.Context, page string, link store.Link) (Link, error) {
	endpoint := s.endpoint()
	if endpoint.Exposed {
		return Link{}, faultf(ErrNotReady,
			"the console at %s is served over plain HTTP, so the link and the password could be read in transit; serve it "+
				"over HTTPS, or, if a proxy in front of it does, name its host with `public`; `caddy gateway user add` creates "+
				"users without a link", endpoint.Console)
	}
	if endpoint.Console == "" {
		return Link{}, faultf(ErrNotReady,
			"the address of the console is not known: the Caddyfile needs one site with `model_console` and a host name; "+
				"if it has several, name one with `public`, and run `caddy reload`; `caddy gateway user add` creates users "+
				"without a link")
	}
	l, secret, err := s.signIn.CreateLink(ctx, link)
	if err != nil {
		return Link{}, err
	}
	s.audit(ctx, "link.create", l.Account, l.ID, "", "kind", l.Kind, "user", l.User, "role", l.Role)
	return Link{Link: l, URL: strings.TrimSuffix(endpoint.Console, "/") + "/" + page + "#" + secret}, nil
}

// user finds a user of the account by id, then by name in any letter case.
func (s *Service) user(account, idOrName string) (store.User, error) {
	for _, lookUp := range []func(string) (store.User, bool){s.store.User, s.store.FindUser} {
		if u, ok := lookUp(idOrName); ok && u.Account == account {
			return u, nil
		}
	}
	return store.User{}, faultf(store.ErrNotFound, "user %q not found in account %q", idOrName, account)
}

func (s *Service) userOf(u store.User) User {
	return User{
		User: u, Passkeys: len(s.store.Passkeys(u.ID)), Identities: s.store.Identities(u.ID),
		SuspendedFrom: s.store.SuspendedFrom(u.ID),
	}
}
