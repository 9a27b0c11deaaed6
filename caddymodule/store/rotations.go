package store

import (
	"context"
	"time"
)

// RotateConnector gives a connector, by id or name, a new secret, which is not shown again. The
// present secret stays valid for the grace period, and the previous one ends now. When it returns
// without an error, the tunnels of ended secrets have been closed.
func (s *Store) RotateConnector(
	ctx context.Context, account, idOrName string, grace time.Duration,
) (Connector, string, error) {
	if grace < 0 || grace > MaxGrace {
		return Connector{}, "", Errorf(ErrInvalid,
			"the grace period of the connector is %v, but must be 0 to %v", grace, MaxGrace)
	}
	secret, hash := newSecret("")
	c, err := update(ctx, s, "rotating the secret of the connector", func(t *tx) (Connector, error) {
		r, err := findConnector(t, account, idOrName)
		if err != nil {
			return Connector{}, err
		}
		now := s.time()
		r.PreviousHash, r.PreviousUntil = r.Hash, new(now.Add(grace))
		r.Hash, r.RotatedAt, r.ChangedBy = hash, &now, actor(ctx)
		t.confirmed()
		connectorKind.save(t, r)
		return r.Connector, nil
	})
	return c, secret, err
}

// secretEnd returns until when the secret with this hash is valid; the zero time: without an end.
func (r *connectorRecord) secretEnd(hash digest, now time.Time) (until time.Time, err error) {
	switch {
	case hash == r.Hash:
		return time.Time{}, nil
	case r.PreviousUntil == nil || hash != r.PreviousHash:
		return time.Time{}, errWrongSecret
	case !r.previousValid(now):
		return time.Time{}, Errorf(ErrRotated, "the tunnel token of the connector was rotated")
	}
	return *r.PreviousUntil, nil
}

// previousValid reports whether the previous secret is valid. Without a grace period it is not, even if the
// clock of this gateway is behind that of the one which has rotated it.
func (r *connectorRecord) previousValid(now time.Time) bool {
	return r.PreviousUntil != nil && r.PreviousUntil.After(*r.RotatedAt) && now.Before(*r.PreviousUntil)
}
