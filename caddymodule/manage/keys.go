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

// DeleteKey names a key by id.
type DeleteKey struct {
	ID string `path:"record"`
	// Record is "remove" to also remove the revoked key from the list.
	Record string `json:"record" need:"filled"`
}

// DeletedKey is a key that is revoked.
type DeletedKey struct {
	store.Key
	// Already is true if it was revoked before.
	Already bool `json:"already_revoked"`
	Removed bool `json:"removed"`
}

// DeleteKey revokes a key. If it was revoked before, it waits again until all gateways of
// the cluster have confirmed that.
func (s *Service) DeleteKey(ctx context.Context, r DeleteKey) (DeletedKey, error) {
	if r.Record != "" && r.Record != "remove" {
		return DeletedKey{}, badRequest("query parameter %q must be %q, which also removes the key from the list", "record", "remove")
	}
	keys, err := s.Keys(ctx)
	if err != nil {
		return DeletedKey{}, err
	}
	k, already := find(keys, func(k store.Key) bool { return k.ID == r.ID && k.RevokedAt != nil })
	if !already || r.Record == "" {
		if k, err = s.RevokeKey(ctx, r.ID); !store.Made(err) {
			return DeletedKey{}, err
		}
	}
	if r.Record != "" {
		err = s.RemoveKey(ctx, r.ID)
	}
	return DeletedKey{Key: k, Already: already, Removed: r.Record != ""}, err
}

// RemoveKey removes a revoked key from the list.
func (s *Service) RemoveKey(ctx context.Context, id string) error {
	_, err := change(ctx, s, func(account string) (struct{}, write, error) {
		return struct{}{}, write{"key.remove", id, "", nil}, s.store.RemoveKey(ctx, account, id)
	})
	return err
}
