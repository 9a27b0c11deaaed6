package manage

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/store"
)

// RemoveUser names a user by id or name, and what becomes of the user's keys.
type RemoveUser struct {
	User string `json:"-" path:"record"`
	Keys string `json:"keys" need:"filled" help:"What happens to the user's keys, required if there are any: revoke, keep, or give=NAME with the name of the new owner"`
}

// RemovedUser is a user who was removed.
type RemovedUser struct {
	User
	// Keys are the keys of the user that were not revoked before, as they are now.
	Keys []Key `json:"keys"`
}

// What becomes of the keys of a removed user.
const (
	revokeKeys = "revoke"
	keepKeys   = "keep"
	giveKeys   = "give="
)

// RemoveUser removes a user by id or name, with all credentials of the user. If the user has keys, the caller decides
// what becomes of them. Users cannot remove themselves, so that an account keeps one; operators can remove all.
func (s *Service) RemoveUser(ctx context.Context, r RemoveUser) (RemovedUser, error) {
	account, err := s.accountForPeople(ctx)
	if err != nil {
		return RemovedUser{}, err
	}
	u, err := s.user(account, r.User)
	if err != nil {
		return RemovedUser{}, err
	}
	if err := s.mayRemove(ctx, u); err != nil {
		return RemovedUser{}, err
	}
	settle, err := s.settlement(ctx, u, r.Keys)
	if err != nil {
		return RemovedUser{}, err
	}
	removed := RemovedUser{User: s.userOf(u), Keys: []Key{}}
	for _, k := range s.keysOf(account, u.ID) { // before the user: after an error, the call can be repeated
		k, err := settle(k)
		if !store.Committed(err) {
			return RemovedUser{}, err
		}
		removed.Keys = append(removed.Keys, k)
	}
	if _, err = s.store.RemoveUser(ctx, account, u.ID); !store.Committed(err) {
		return RemovedUser{}, err
	}
	s.audit(ctx, "user.remove", account, u.ID, u.Name)
	for i, k := range removed.Keys {
		removed.Keys[i] = s.keyOf(k.Key)
	}
	return removed, err // if edges have confirmed it, they have confirmed the changes of the keys, too
}

// mayRemove fails if the caller may not remove this user. The store checks again who the last admin is: the keys
// change before.
func (s *Service) mayRemove(ctx context.Context, u store.User) error {
	if caller := CallerFrom(ctx); !caller.Operator && u.ID == caller.User {
		return faultf(ErrForbidden,
			"you cannot remove yourself; ask another user of the account, or the operator of the gateway")
	}
	users := s.store.Users(u.Account)
	others := slices.DeleteFunc(users, func(o store.User) bool { return o.ID == u.ID })
	admin := func(o store.User) bool { return o.Role == store.RoleAdmin }
	if admin(u) && len(others) > 0 && !slices.ContainsFunc(others, admin) {
		return store.ErrLastAdmin
	}
	return nil
}

// keysOf returns the keys of a user that are not revoked.
func (s *Service) keysOf(account, user string) (keys []Key) {
	for _, k := range s.store.Keys(account) {
		if k.Owner == user && k.RevokedAt == nil {
			keys = append(keys, s.keyOf(k))
		}
	}
	return keys
}

// settlement returns what to do with each key of a user who leaves.
func (s *Service) settlement(ctx context.Context, u store.User, choice string) (func(Key) (Key, error), error) {
	heir, gives := strings.CutPrefix(choice, giveKeys)
	switch {
	case gives:
		to, err := s.user(u.Account, heir)
		if err != nil {
			return nil, err
		}
		if to.ID == u.ID {
			return nil, badRequest("the keys of %q cannot stay with %q: give them to another user", u.Name, u.Name)
		}
		return func(k Key) (Key, error) {
			return s.EditKey(ctx, k.ID, func(f *store.KeyFields) error { f.Owner = to.ID; return nil })
		}, nil
	case choice == revokeKeys:
		return func(k Key) (Key, error) { return s.RevokeKey(ctx, k.ID) }, nil
	case choice == keepKeys:
		return func(k Key) (Key, error) { return k, nil }, nil
	case choice != "":
		return nil, badRequest("keys is %.80q; it must be revoke, keep, or give=NAME", choice)
	}
	if keys := s.keysOf(u.Account, u.ID); len(keys) > 0 {
		return nil, faultf(store.ErrInUse, "%s has %s, which would keep working: choose with `keys` (the flag --keys) what "+
			"happens to them: revoke, give=NAME to another user, or keep", u.Name, keyList(keys))
	}
	return func(k Key) (Key, error) { return k, nil }, nil
}

// keyList returns the number and the first names of keys.
func keyList(keys []Key) string {
	const shown = 5
	names := make([]string, 0, shown)
	for _, k := range keys[:min(shown, len(keys))] {
		names = append(names, k.Name)
	}
	if len(keys) > shown {
		names = append(names, "…")
	}
	noun := "keys"
	if len(keys) == 1 {
		noun = "key"
	}
	return fmt.Sprintf("%d API %s (%s)", len(keys), noun, strings.Join(names, ", "))
}

// ownerName returns the name of the owner of a key, also of one who was removed; "" for none.
func (s *Service) ownerName(account, id string) string {
	if u, ok := s.store.User(id); ok {
		return u.Name
	}
	if name, ok := s.store.FormerUser(account, id); ok {
		return name + " (removed)"
	}
	return ""
}

// ownerID returns the id of a user of the account, or of the owner of a key who was removed.
func (s *Service) ownerID(account, idOrName string) (string, error) {
	u, err := s.user(account, idOrName)
	if err == nil {
		return u.ID, nil
	}
	for _, k := range s.store.Keys(account) {
		if k.Owner != "" && (k.Owner == idOrName || s.ownerName(account, k.Owner) == idOrName) {
			return k.Owner, nil
		}
	}
	return "", err
}
