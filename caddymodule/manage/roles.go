package manage

import (
	"cmp"
	"context"
	"slices"

	"github.com/postern-dev/postern/caddymodule/store"
)

// Roles are the roles of users that may perform an operation.
type Roles uint8

const (
	admins Roles = 1 << iota
	members
	viewers

	operators = Roles(0) // no role
	readers   = admins | viewers
	owners    = admins | members // members with their own records
	everyone  = admins | members | viewers
)

// allow reports whether a role is one of them.
func (r Roles) allow(role store.Role) bool {
	return r&map[store.Role]Roles{store.RoleAdmin: admins, store.RoleMember: members, store.RoleViewer: viewers}[role] != 0
}

// RoleMay reports whether a role allows an operation, like "POST /keys".
func RoleMay(role store.Role, operation string) bool {
	return FindOperation(operation).Roles.allow(role)
}

// May returns an error unless the roles of the caller allow an operation, like "POST /keys".
func (s *Service) May(ctx context.Context, operation string) error {
	return s.may(ctx, FindOperation(operation))
}

func (s *Service) may(ctx context.Context, o Operation) error {
	c := CallerFrom(ctx)
	switch {
	case c.Operator:
		return nil
	case o.Roles == operators:
		return operator(ctx)
	}
	roles := s.rolesOf(c)
	if len(roles) == 0 {
		return faultf(ErrForbidden, "you are not signed in, or your user was removed; sign in, or send a management token")
	}
	for _, role := range roles {
		if !o.Roles.allow(role) {
			return faultf(ErrForbidden, "%ss cannot do this. Ask an admin of the account", role)
		}
	}
	return nil
}

// rolesOf returns the present role of the caller's user, and the one that the caller is restricted to.
func (s *Service) rolesOf(c Caller) []store.Role {
	u, ok := s.store.User(c.User)
	if !ok || u.Account != c.Account {
		return nil
	}
	return []store.Role{u.Role, cmp.Or(c.Role, u.Role)}
}

// owner returns the id of the user if the caller may see and change only the keys and tokens of this user, "" if it
// may access those of the whole account.
func (s *Service) owner(ctx context.Context) string {
	c := CallerFrom(ctx)
	if roles := s.rolesOf(c); c.Operator || len(roles) > 0 && !slices.Contains(roles, store.RoleMember) {
		return ""
	}
	return c.User
}

// ownKeys returns whether the caller may see the use of a key, by its id.
func (s *Service) ownKeys(ctx context.Context, account string) func(id string) bool {
	owner := s.owner(ctx)
	if owner == "" {
		return func(string) bool { return true }
	}
	return func(id string) bool {
		k, ok := s.store.Key(account, id)
		return ok && k.Owner == owner
	}
}

// ownKey returns the id of a key that the caller names, and the check for the transaction of a write: others may
// change the key until then.
func (s *Service) ownKey(ctx context.Context, idOrName string) (id string, check store.KeyCheck, err error) {
	check = func(k store.Key) error { return s.mayChange(ctx, k) }
	if s.owner(ctx) == "" {
		return idOrName, check, nil
	}
	k, err := s.Key(ctx, idOrName)
	return k.ID, check, err
}

// mayChange fails if the caller may change only its own keys, and not this one. Such a caller does not find keys of
// others, and cannot change a key that another user has disabled.
func (s *Service) mayChange(ctx context.Context, k store.Key) error {
	owner := s.owner(ctx)
	switch {
	case owner == "":
		return nil
	case k.Owner != owner:
		return errNoKey(k.ID)
	case k.DisabledAt == nil || k.DisabledBy != nil && k.DisabledBy.User == owner:
		return nil
	case k.DisabledBy == nil:
		return faultf(ErrForbidden, "the key %q is disabled; ask an admin of the account", k.Name)
	}
	return faultf(ErrForbidden, "the key %q was disabled by %s; ask an admin of the account", k.Name, k.DisabledBy.Label())
}
