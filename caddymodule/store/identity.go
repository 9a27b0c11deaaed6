package store

import (
	"context"
	"slices"
)

// SecretIdentity is the name of the secret that is the key of the gateway's identity.
const SecretIdentity = "tunnel_identity"

const identityPath = dirSecrets + SecretIdentity

// Identity returns the key of the gateway's identity, nil before it was created.
func (s *Store) Identity() []byte { return slices.Clone(s.view.Load().identity) }

// ReplaceIdentity replaces the key of the gateway's identity. When it returns without an error,
// subscribers of all gateways have got the change.
func (s *Store) ReplaceIdentity(ctx context.Context, key []byte) error {
	return s.update(ctx, "replacing the identity of the gateway", func(t *tx) error {
		t.get(identityPath)
		t.put(identityPath, &secretRecord{Value: key})
		t.confirmed()
		return nil
	})
}

// applyIdentity applies a change of the identity. An unreadable one leaves the present key.
func (d *draft) applyIdentity(e Event) error {
	var r secretRecord
	if e.Deleted {
		return nil
	}
	if err := decode(e.Item, &r); err != nil {
		return err
	}
	if len(r.Value) == 0 {
		return damaged(e.Item, "it is empty")
	}
	if changed := !slices.Equal(r.Value, d.identity); changed && !d.first {
		d.changes = append(d.changes, Change{Kind: KindIdentity, Revision: e.Item.ModRevision})
	}
	d.identity = r.Value
	return nil
}
