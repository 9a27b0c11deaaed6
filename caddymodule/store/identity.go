package store

import (
	"context"
	"time"
)

// identityPath is the record of the gateway's identity, next to its secrets.
const identityPath = dirSecrets + "tunnel_identity"

// Identity is the key that the gateway proves to connectors, and its rotation.
type Identity struct {
	Key []byte `json:"value"`
	// Next is the key that replaces Key at SwitchAt; nil: none does.
	Next     []byte    `json:"next,omitempty"`
	Since    time.Time `json:"since,omitzero"` // when Next was created
	SwitchAt time.Time `json:"switch_at,omitzero"`
	// Former is the pin of the key before Key, "" if there was none.
	Former string `json:"former,omitempty"`
}

type identityRecord struct {
	header
	Identity
}

// Identity returns the gateway's identity. If it does not exist yet, its key is created
// with generate.
func (s *Store) Identity(ctx context.Context, generate func() ([]byte, error)) (Identity, error) {
	return s.ChangeIdentity(ctx, func(i *Identity) (err error) {
		if len(i.Key) == 0 {
			i.Key, err = generate()
		}
		return err
	})
}

// ChangeIdentity changes the gateway's identity in one step, and returns it. change may
// be called again after a conflict.
func (s *Store) ChangeIdentity(ctx context.Context, change func(*Identity) error) (Identity, error) {
	return update(ctx, s, "changing the identity of the gateway", func(t *tx) (Identity, error) {
		var r identityRecord
		if t.read(identityPath, &r) && len(r.Key) == 0 {
			return Identity{}, damaged(Item{Key: identityPath}, "it is empty")
		}
		if t.err != nil {
			return Identity{}, t.err
		}
		before := r.Identity
		if err := change(&r.Identity); err != nil {
			return Identity{}, err
		}
		if !before.equal(r.Identity) {
			t.put(identityPath, &r)
		}
		return r.Identity, nil
	})
}

func (i Identity) equal(other Identity) bool {
	return string(i.Key) == string(other.Key) && string(i.Next) == string(other.Next) &&
		i.SwitchAt.Equal(other.SwitchAt) && i.Former == other.Former
}

// ConfirmPin records that a connector has stored the pin of the gateway's next key.
func (s *Store) ConfirmPin(ctx context.Context, id, pin string) error {
	_, err := s.changeKnown(ctx, "recording the pin that the connector has stored", id,
		func(r *connectorRecord) (bool, error) {
			changed := r.NextPin != pin
			r.NextPin = pin
			return changed, nil
		})
	return err
}
