package manage

import (
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
	account, err := s.account(ctx, c.Account)
	if err != nil {
		return CreatedKey{}, err
	}
	if c.Scope == "" {
		c.Scope = defaultScope
	}
	k, secret, err := s.store.CreateKey(ctx, account, c.Name, c.Scope)
	if err != nil {
		return CreatedKey{}, err
	}
	s.audit(ctx, "key.create", account, k.ID, k.Name, "scope", k.Scope)
	return CreatedKey{ID: k.ID, Name: k.Name, Scope: k.Scope, Key: secret, CreatedAt: k.CreatedAt}, nil
}

// Keys lists the keys of an account, revoked ones included, oldest first.
func (s *Service) Keys(account string) ([]store.Key, error) {
	account, err := s.known(account)
	if err != nil {
		return nil, err
	}
	return list(s.store.Keys(account)), nil
}

// RevokeKey revokes a key. When it returns, new requests with the key fail
// and its running streams are cut. Revoking twice is not an error.
func (s *Service) RevokeKey(ctx context.Context, account, id string) (store.Key, error) {
	account, err := s.account(ctx, account)
	if err != nil {
		return store.Key{}, err
	}
	k, err := s.store.RevokeKey(ctx, account, id)
	if err != nil {
		return store.Key{}, err
	}
	s.audit(ctx, "key.revoke", account, k.ID, k.Name)
	return k, nil
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
	account, err := s.account(ctx, account)
	if err != nil {
		return err
	}
	if err := s.store.RemoveKey(ctx, account, id); err != nil {
		return err
	}
	s.audit(ctx, "key.remove", account, id, "")
	return nil
}
