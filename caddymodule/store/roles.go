package store

import (
	"cmp"
	"context"
	"slices"
)

// Role is what a user may do in the account.
type Role string

// The roles.
const (
	RoleAdmin  Role = "admin"  // everything
	RoleMember Role = "member" // create and change their own keys, see the use of these, and the models
	RoleViewer Role = "viewer" // see everything but secrets, and change nothing
)

// Roles returns all roles.
func Roles() []Role { return []Role{RoleAdmin, RoleMember, RoleViewer} }

// ParseRole returns the role of this name. "" is RoleAdmin.
func ParseRole(name string) (Role, error) {
	role := cmp.Or(Role(name), RoleAdmin)
	if !slices.Contains(Roles(), role) {
		return "", Errorf(ErrInvalid, "unknown role %.40q; the roles are admin, member and viewer", name)
	}
	return role, nil
}

// SetUserRole changes the role of a user, given by id or name. It fails with ErrConflict for the
// last admin of the account.
func (s *Store) SetUserRole(ctx context.Context, account, idOrName string, role Role) (User, error) {
	return update(ctx, s, "changing the role", func(t *tx) (User, error) {
		r, err := findUser(t, account, idOrName)
		if err != nil {
			return User{}, err
		}
		if r.Role == RoleAdmin && role != RoleAdmin && !t.hasOtherAdmin(account, r.ID) {
			return User{}, ErrLastAdmin
		}
		r.Role = role
		userKind.save(t, r)
		t.confirmed()
		return r.User, nil
	})
}

// ErrLastAdmin is the error of a change that would leave users of an account without an admin.
var ErrLastAdmin = Errorf(ErrConflict, "this is the last admin of the account: make another user an admin first")

// hasOtherAdmin reports whether an account has an admin besides this user. The write fails if that
// changes until it is committed.
func (t *tx) hasOtherAdmin(account, id string) bool {
	for _, u := range userKind.loadAll(t, account) {
		if u.ID == id || u.Role != RoleAdmin {
			continue
		}
		if now := userKind.load(t, account, u.ID); now != nil && now.Role == RoleAdmin {
			return true
		}
	}
	return false
}

// isAlone reports whether an account has no user but this one. The write fails if that changes
// until it is committed.
func (t *tx) isAlone(account, id string) bool {
	t.get(markAccount(account))
	return !slices.ContainsFunc(userKind.loadAll(t, account), func(u *userRecord) bool { return u.ID != id })
}
