package manage

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// defaultScope is the scope of a key that is created without one: every
// deployment of its account.
const defaultScope = "*"

// CreateKey asks for a new key.
type CreateKey struct {
	Name    string `json:"name" need:"required"`
	Scope   string `json:"scope" need:"filled"` // "" means "*"
	Account string `json:"account"`
}

// CreatedKey is the answer to [CreateKey]: the only place of the secret.
type CreatedKey struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Scope     string    `json:"scope"`
	Key       string    `json:"key"`
	CreatedAt time.Time `json:"created_at"`
}

// CreateKey makes a key.
func (s *Service) CreateKey(ctx context.Context, c CreateKey) (CreatedKey, error) {
	return change(ctx, s, c.Account, func(account string) (CreatedKey, write, error) {
		k, secret, err := s.store.CreateKey(ctx, account, c.Name, cmp.Or(c.Scope, defaultScope))
		return CreatedKey{ID: k.ID, Name: k.Name, Scope: k.Scope, Key: secret, CreatedAt: k.CreatedAt},
			write{"key.create", k.ID, k.Name, []any{"scope", k.Scope}}, err
	})
}

// Keys lists the keys of an account, revoked ones included, oldest first.
func (s *Service) Keys(account string) ([]store.Key, error) {
	return list(s, account, s.store.Keys, as)
}

// RevokeKey revokes a key. When it returns, new requests with the key fail
// and its running streams are cut. Revoking twice is not an error.
func (s *Service) RevokeKey(ctx context.Context, account, id string) (store.Key, error) {
	return change(ctx, s, account, func(account string) (store.Key, write, error) {
		k, err := s.store.RevokeKey(ctx, account, id)
		return k, write{"key.revoke", k.ID, k.Name, nil}, err
	})
}

// DeletedKey is a key that was revoked, or was revoked before and is removed.
type DeletedKey struct {
	store.Key
	Removed bool `json:"removed"`
}

// DeleteKey revokes a key, or removes one that was revoked before, so that no
// list shows it any longer.
func (s *Service) DeleteKey(ctx context.Context, account, id string) (DeletedKey, error) {
	account, err := s.account(ctx, account)
	if err != nil {
		return DeletedKey{}, err
	}
	keys := s.store.Keys(account)
	i := slices.IndexFunc(keys, func(k store.Key) bool { return k.ID == id })
	if i < 0 || keys[i].RevokedAt == nil {
		k, err := s.RevokeKey(ctx, account, id)
		return DeletedKey{Key: k}, err
	}
	return DeletedKey{Key: keys[i], Removed: true}, s.RemoveKey(ctx, account, id)
}

// RemoveKey is RevokeKey for a key that no list is to show any longer.
func (s *Service) RemoveKey(ctx context.Context, account, id string) error {
	_, err := change(ctx, s, account, func(account string) (struct{}, write, error) {
		return struct{}{}, write{"key.remove", id, "", nil}, s.store.RemoveKey(ctx, account, id)
	})
	return err
}
