package manage

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/store"
)

// Key is a listed key.
type Key struct {
	store.Key
	// State is valid, disabled, expired, suspended or revoked.
	State string `json:"state"`
	// OwnerName is the name of the owner, with " (removed)" for a user who was removed; absent if there is none.
	OwnerName string `json:"owner_name,omitempty" column:"OWNER"`
	// GroupName is the name of the only group that it counts for.
	GroupName string `json:"group_name,omitempty"`
}

// CreatedKey is the answer to [CreateKey] and [RotateKey]. The secret is in no other
// answer.
type CreatedKey struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Scope     string    `json:"scope"`
	Key       string    `json:"key"`
	CreatedAt time.Time `json:"created_at"`
	// ExpiresAt is when the key expires; absent: never.
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	// Previous is the secret before this one, while it is valid.
	Previous *store.PreviousSecret `json:"previous,omitempty"`
	// Unconfirmed is set if gateways of the cluster may still accept a secret that has ended.
	Unconfirmed *UnconfirmedAnswer `json:"unconfirmed,omitempty"`
}

func createdKey(k store.Key, secret string) CreatedKey {
	return CreatedKey{
		ID: k.ID, Name: k.Name, Scope: k.Scope, Key: secret, CreatedAt: k.CreatedAt, ExpiresAt: k.ExpiresAt,
		Previous: k.Previous,
	}
}

// CreateKey creates a key. edit gets fields with the defaults of the account, and changes them.
func (s *Service) CreateKey(ctx context.Context, edit func(*store.KeyFields) error) (CreatedKey, error) {
	return change(ctx, s, func(account string) (CreatedKey, write, error) {
		f := s.newKeyFields(ctx, account)
		if err := s.editKey(ctx, account, &f, edit); err != nil {
			return CreatedKey{}, write{}, err
		}
		k, secret, err := s.store.CreateKey(ctx, account, f)
		return createdKey(k, secret), write{"key.create", k.ID, k.Name, changed(values{"name": k.Name}, valuesOf(k))}, err
	})
}

// newKeyFields returns the fields of a new key, with the defaults of the account.
func (s *Service) newKeyFields(ctx context.Context, account string) store.KeyFields {
	defaults := s.keyDefaults(account)
	f := store.KeyFields{
		Scope: defaults.Scope, Owner: CallerFrom(ctx).User, AllowedIPs: defaults.AllowedIPs, Limits: defaults.Limits,
	}
	if defaults.ExpiresDays > 0 {
		f.ExpiresAt = new(s.now().AddDate(0, 0, defaults.ExpiresDays))
	}
	return f
}

// editKey calls edit, and checks that the caller may make its changes. edit sets the owner by id or name.
func (s *Service) editKey(ctx context.Context, account string, f *store.KeyFields,
	edit func(*store.KeyFields) error,
) error {
	before := *f
	if err := edit(f); err != nil {
		return err
	}
	if s.owner(ctx) != "" { // limits and the priority bound what members use
		switch {
		case f.Limits != before.Limits || f.PersonLimits != before.PersonLimits:
			return faultf(ErrForbidden, "members cannot set limits; ask an admin of the account")
		case cmp.Or(f.Priority, store.PriorityNormal) != cmp.Or(before.Priority, store.PriorityNormal):
			return faultf(ErrForbidden, "members cannot set a priority; ask an admin of the account")
		}
	}
	if f.Owner == before.Owner {
		return nil
	}
	var err error
	f.Owner, err = s.ownerOf(ctx, account, f.Owner)
	return err
}

// KeyDefaults returns the defaults of new keys of the account.
func (s *Service) KeyDefaults(ctx context.Context) (store.KeyDefaults, error) {
	account, err := s.account(ctx)
	return s.keyDefaults(account), err
}

func (s *Service) keyDefaults(account string) store.KeyDefaults {
	a, _ := s.store.Account(account)
	a.KeyDefaults.Scope = cmp.Or(a.KeyDefaults.Scope, "*")
	return a.KeyDefaults
}

// ownerOf returns the id of the user of the account who will own a key; "" for "".
func (s *Service) ownerOf(ctx context.Context, account, idOrName string) (string, error) {
	var u store.User
	if idOrName != "" {
		var err error
		if u, err = s.user(account, idOrName); err != nil {
			return "", err
		}
	}
	if own := s.owner(ctx); own != "" && u.ID != own {
		return "", faultf(ErrForbidden,
			"members can only create keys for themselves; ask an admin of the account to change the owner")
	}
	return u.ID, nil
}

// Keys lists the keys of the account that the caller may see, revoked ones included, oldest first.
func (s *Service) Keys(ctx context.Context) ([]Key, error) {
	keys, err := list(ctx, s, s.store.Keys, s.keyOf)
	if own := s.owner(ctx); own != "" {
		keys = slices.DeleteFunc(keys, func(k Key) bool { return k.Owner != own })
	}
	return keys, err
}

// keyOf adds to a record its state and the name of its owner.
func (s *Service) keyOf(k store.Key) Key {
	return Key{
		Key: k, State: k.State(s.now()), OwnerName: s.ownerName(k.Account, k.Owner), GroupName: s.store.GroupName(k.Group),
	}
}

// Key returns a key of the account, by id or name.
func (s *Service) Key(ctx context.Context, idOrName string) (Key, error) {
	keys, err := s.Keys(ctx)
	if err != nil {
		return Key{}, err
	}
	var found Key
	for _, k := range keys { // of several revoked keys with the name, the last
		if k.ID == idOrName || k.Name == idOrName && (found.ID == "" || found.RevokedAt != nil) {
			found = k
		}
	}
	if found.ID == "" {
		return Key{}, errNoKey(idOrName)
	}
	return found, nil
}

func errNoKey(idOrName string) error {
	return faultf(store.ErrNotFound, "key %q not found; `caddy gateway key list` shows all", idOrName)
}

// KeyLimits is the state of the limits of a key at all levels, and the usage of the key.
type KeyLimits struct {
	// Limits are the limits per time that requests of the key obey: those of the account, of groups and of the key.
	Limits        []KeyLimit `json:"limits"`
	TokensToday   int64      `json:"tokens_today"`   // since midnight in UTC, of requests that have ended
	TokensMonth   int64      `json:"tokens_month"`   // since the month began in UTC, of requests that have ended
	RequestsToday int64      `json:"requests_today"` // that a model got and that have ended
	RequestsMonth int64      `json:"requests_month"`
}

// KeyLimit is the state of a limit.
type KeyLimit struct {
	limits.State
	ResetsAt time.Time `json:"resets_at"` // when nothing is used
}

// KeyLimits returns the state of the limits of a key, by id or name.
func (s *Service) KeyLimits(ctx context.Context, idOrName string) (KeyLimits, error) {
	k, err := s.Key(ctx, idOrName)
	if err != nil {
		return KeyLimits{}, err
	}
	usage, err := s.limits(ctx, k.Account, limits.AppendLevels(nil, k.Account, s.store.GroupsOf(k.ID), k.ID))
	if err != nil {
		return KeyLimits{}, err
	}
	l := KeyLimits{
		Limits: make([]KeyLimit, len(usage.States)), TokensToday: usage.Day.Tokens, TokensMonth: usage.Month.Tokens,
		RequestsToday: usage.Day.Requests, RequestsMonth: usage.Month.Requests,
	}
	for i, state := range usage.States {
		l.Limits[i] = KeyLimit{state, s.now().Add(state.Reset()).UTC().Round(time.Second)}
	}
	return l, nil
}

// EditKey changes the fields of a key, by id or name. When it returns, requests that the key no longer
// allows fail, and running ones are ended.
func (s *Service) EditKey(ctx context.Context, idOrName string, edit func(*store.KeyFields) error) (Key, error) {
	return change(ctx, s, func(account string) (Key, write, error) {
		id, check, err := s.ownKey(ctx, idOrName)
		if err != nil {
			return Key{}, write{}, err
		}
		// The transaction would add words to the errors of the request.
		known, _ := s.Key(ctx, id) // its owner may be a removed user, who stays
		if err := s.editKey(ctx, account, &store.KeyFields{Owner: known.Owner}, edit); err != nil {
			return Key{}, write{}, err
		}
		var before values
		k, err := s.store.EditKey(ctx, account, id, func(k *store.Key) error {
			before = valuesOf(k.KeyFields)
			group := k.Group
			err := s.editKey(ctx, account, &k.KeyFields, edit)
			if err == nil && k.Group != group && k.Group != s.store.GroupName(group) {
				err = s.mayLeaveGroups(ctx, known)
			}
			return err
		}, check)
		return s.keyOf(k), write{"key.edit", k.ID, k.Name, changed(before, valuesOf(k.KeyFields))}, err
	})
}

// mayLeaveGroups fails if a member takes a key out of the sums of its groups, whose limits it could pass that way.
func (s *Service) mayLeaveGroups(ctx context.Context, k Key) error {
	if s.owner(ctx) == "" || len(s.store.GroupsOf(k.ID)) == 0 || k.LastUsedAt == nil ||
		k.LastUsedAt.Before(monthOf(s.now().UTC())) {
		return nil
	}
	return faultf(ErrForbidden, "the key was used in this month, which counts for its groups; ask an admin of the "+
		"account to change its group or to remove it from the list")
}

// changeKey is [change] for a key, by id or name.
func (s *Service) changeKey(
	ctx context.Context, operation, idOrName string,
	do func(account, idOrName string, check store.KeyCheck) (store.Key, error),
) (Key, error) {
	return change(ctx, s, func(account string) (Key, write, error) {
		id, check, err := s.ownKey(ctx, idOrName)
		if err != nil {
			return Key{}, write{}, err
		}
		k, err := do(account, id, check)
		return s.keyOf(k), write{operation, k.ID, k.Name, nil}, err
	})
}

// DisableKey disables a key, by id or name, until it is enabled. When it returns, new requests
// with the key fail and its running ones are ended.
func (s *Service) DisableKey(ctx context.Context, idOrName string) (Key, error) {
	return s.changeKey(ctx, "key.disable", idOrName, func(account, id string, check store.KeyCheck) (store.Key, error) {
		return s.store.EnableKey(ctx, account, id, false, check)
	})
}

// EnableKey enables a disabled key, by id or name.
func (s *Service) EnableKey(ctx context.Context, idOrName string) (Key, error) {
	return s.changeKey(ctx, "key.enable", idOrName, func(account, id string, check store.KeyCheck) (store.Key, error) {
		return s.store.EnableKey(ctx, account, id, true, check)
	})
}

// RotateKey asks for a new secret of a key.
type RotateKey struct {
	Key   string `json:"-" path:"record"`
	Grace string `json:"grace" need:"filled" format:"duration" default:"24h" help:"How long the current secret stays valid, up to 30d"`
}

// RotateKey creates a new secret for a key, by id or name. A previous secret that is still valid ends at once.
func (s *Service) RotateKey(ctx context.Context, r RotateKey) (CreatedKey, error) {
	grace, err := parseGrace(cmp.Or(r.Grace, store.DefaultGrace.String()))
	if err != nil {
		return CreatedKey{}, err
	}
	created, err := change(ctx, s, func(account string) (CreatedKey, write, error) {
		id, check, err := s.ownKey(ctx, r.Key)
		if err != nil {
			return CreatedKey{}, write{}, err
		}
		k, secret, err := s.store.RotateKey(ctx, account, id, grace, check)
		return createdKey(k, secret), write{"key.rotate", k.ID, k.Name, []any{"grace", grace}}, err
	})
	created.Unconfirmed, err = splitUnconfirmed(err)
	return created, err
}

// RevokeKey revokes a key, by id or name. When it returns, new requests with the key fail
// and its running streams are cut. Revoking twice is not an error.
func (s *Service) RevokeKey(ctx context.Context, idOrName string) (Key, error) {
	return s.changeKey(ctx, "key.revoke", idOrName, func(account, id string, check store.KeyCheck) (store.Key, error) {
		return s.store.RevokeKey(ctx, account, id, check)
	})
}

// DeleteKey names a key by id or name.
type DeleteKey struct {
	Key    string `json:"-" path:"record"`
	Record string `json:"record" need:"filled" flag:"-" help:"remove: the key is also removed from the list"`
}

// DeletedKey is a key that is revoked.
type DeletedKey struct {
	Key
	// Already is true if it was revoked before.
	Already bool `json:"already_revoked"`
	Removed bool `json:"removed"`
}

// DeleteKey revokes a key. If it was revoked before, it waits again until all gateways of
// the cluster have confirmed that.
func (s *Service) DeleteKey(ctx context.Context, r DeleteKey) (DeletedKey, error) {
	if r.Record != "" && r.Record != "remove" {
		return DeletedKey{}, badRequest("query parameter %q must be %q, which also removes the key from the list",
			"record", "remove")
	}
	k, err := s.Key(ctx, r.Key)
	if err != nil && !errors.Is(err, store.ErrNotFound) { // another gateway may just have created it
		return DeletedKey{}, err
	}
	if r.Record != "" {
		if err := s.mayLeaveGroups(ctx, k); err != nil {
			return DeletedKey{}, err
		}
	}
	already := k.RevokedAt != nil
	if !already || r.Record == "" {
		if k, err = s.RevokeKey(ctx, cmp.Or(k.ID, r.Key)); !store.Committed(err) {
			return DeletedKey{}, err
		}
	}
	if r.Record != "" {
		err = s.RemoveKey(ctx, k.ID)
	}
	return DeletedKey{Key: k, Already: already, Removed: r.Record != ""}, err
}

// RemoveKey removes a key, by id or name, from the list. It revokes the key if necessary.
func (s *Service) RemoveKey(ctx context.Context, idOrName string) error {
	k, _ := s.Key(ctx, idOrName) // changeKey finds that it is missing
	if err := s.mayLeaveGroups(ctx, k); err != nil {
		return err
	}
	_, err := s.changeKey(ctx, "key.remove", idOrName, func(account, id string, check store.KeyCheck) (store.Key, error) {
		return s.store.RemoveKey(ctx, account, id, check)
	})
	return err
}
