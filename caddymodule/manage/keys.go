package manage

import (
	"cmp"
	"context"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// CreateKey asks for a new key.
type CreateKey struct {
	Name  string `json:"name" need:"required"` // need not be unique
	Scope string `json:"scope" need:"filled"`  // "" means "*", every deployment of the account
}

// CreatedKey is the answer to [CreateKey]. The secret is in no other answer.
type CreatedKey struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Scope     string    `json:"scope"`
	Key       string    `json:"key"`
	CreatedAt time.Time `json:"created_at"`
}

// CreateKey creates a key.
func (s *Service) CreateKey(ctx context.Context, c CreateKey) (CreatedKey, error) {
	return change(ctx, s, func(account string) (CreatedKey, write, error) {
		k, secret, err := s.store.CreateKey(ctx, account, c.Name, cmp.Or(c.Scope, "*"))
		return CreatedKey{ID: k.ID, Name: k.Name, Scope: k.Scope, Key: secret, CreatedAt: k.CreatedAt},
			write{"key.create", k.ID, k.Name, []any{"scope", k.Scope}}, err
	})
}

// Keys lists the keys of the account, revoked ones included, oldest first.
func (s *Service) Keys(ctx context.Context) ([]store.Key, error) {
	return list(ctx, s, s.store.Keys, as)
}

// RevokeKey revokes a key. When it returns, new requests with the key fail
// and its running streams are cut. Revoking twice is not an error.
func (s *Service) RevokeKey(ctx context.Context, id string) (store.Key, error) {
	return change(ctx, s, func(account string) (store.Key, write, error) {
		k, err := s.store.RevokeKey(ctx, account, id)
		return k, write{"key.revoke", k.ID, k.Name, nil}, err
	})
}

// DeletedKey is a key that was revoked, or removed if it was revoked before.
type DeletedKey struct {
	store.Key
	Removed bool `json:"removed"`
}

// DeleteKey revokes a key, or removes one that was revoked before.
func (s *Service) DeleteKey(ctx context.Context, id string) (DeletedKey, error) {
	keys, err := s.Keys(ctx)
	if err != nil {
		return DeletedKey{}, err
	}
	if k, ok := find(keys, func(k store.Key) bool { return k.ID == id && k.RevokedAt != nil }); ok {
		return DeletedKey{Key: k, Removed: true}, s.RemoveKey(ctx, id)
	}
	k, err := s.RevokeKey(ctx, id)
	return DeletedKey{Key: k}, err
}

// RemoveKey removes a revoked key from the list.
func (s *Service) RemoveKey(ctx context.Context, id string) error {
	_, err := change(ctx, s, func(account string) (struct{}, write, error) {
		return struct{}{}, write{"key.remove", id, "", nil}, s.store.RemoveKey(ctx, account, id)
	})
	return err
}
