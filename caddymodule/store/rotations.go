package store

import (
	"context"
	"slices"
	"time"

	"github.com/postern-dev/postern/connector/text"
)

const (
	// maxOffered bounds the secrets of one rotation that one gateway has offered. Each of
	// its processes offers one, and only after the secret of the connector's hello was
	// confirmed, so that the connector has one of the latest or of another gateway.
	maxOffered = 4
	// maxProblem bounds a connector's error message, in bytes.
	maxProblem = 256

	makingSecret = "creating a new secret for the connector"
)

// Offer is a new secret of a connector.
type Offer struct {
	Number int64 // at least 1; higher than those of the connector's earlier ones
	Secret string
}

// BeginRotation begins the rotation of a connector's secret, given by id or name. It
// notifies subscribers; the owner of the tunnel then calls [Store.OfferSecret]. A pending
// rotation starts again and its problem is cleared.
func (s *Store) BeginRotation(ctx context.Context, account, idOrName string) (Connector, error) {
	return s.changeConnector(ctx, "rotating the secret of the connector", account, idOrName,
		func(r *connectorRecord) (bool, error) {
			r.rotate(s)
			r.ChangedBy = actor(ctx)
			return true, nil
		})
}

// ShowSecret returns a new secret of a connector for a user to copy there. It cannot be
// shown again. A secret shown earlier becomes invalid, and none is offered on the tunnel
// until [Store.BeginRotation].
func (s *Store) ShowSecret(ctx context.Context, account, idOrName string) (Connector, Offer, error) {
	secret, hash := newSecret("")
	var number int64
	c, err := s.changeConnector(ctx, makingSecret, account, idOrName, func(r *connectorRecord) (bool, error) {
		r.rotate(s)
		r.ChangedBy = actor(ctx)
		r.Rotation.ByHand = true
		r.Next = slices.DeleteFunc(r.Next, func(n nextSecret) bool { return n.Shown })
		number = r.offer(nextSecret{Hash: hash, Shown: true})
		return true, nil
	})
	return c, Offer{number, secret}, err
}

// OfferSecret returns a new secret of a connector with a pending rotation, to be offered
// on its tunnel. Secrets offered earlier also stay valid: the connector may have saved one
// of them without being able to confirm it.
func (s *Store) OfferSecret(ctx context.Context, id string) (Offer, error) {
	secret, hash := newSecret("")
	var number int64
	_, err := s.changeKnown(ctx, makingSecret, id, func(r *connectorRecord) (bool, error) {
		if r.Rotation == nil || r.Rotation.ByHand {
			return false, Errorf(ErrConflict, "no rotation is pending for the connector %q", r.Name)
		}
		number = r.offer(nextSecret{Hash: hash, Edge: s.edge})
		return true, nil
	})
	return Offer{number, secret}, err
}

// OfferNumber returns the number of the offered or shown secret of a connector, 0 if it is
// not one, or an outdated one.
func (s *Store) OfferNumber(id, secret string) int64 {
	hash, ok := hashSecret("", secret)
	r, known := connectorKind.byID(s.view.Load(), id)
	if !ok || !known {
		return 0
	}
	return r.number(hash)
}

// FinishRotation makes the offered or shown secret with this number the connector's own,
// which has stored it. Earlier ones become invalid. Later ones stay valid, as another
// gateway may have offered one that the connector has stored since. It returns false if
// the number is unknown or outdated.
func (s *Store) FinishRotation(ctx context.Context, id string, number int64) (Connector, bool, error) {
	finished := false
	c, err := s.changeKnown(ctx, "finishing the rotation of the connector's secret", id,
		func(r *connectorRecord) (bool, error) {
			finished = r.finish(number, s.time())
			return finished, nil
		})
	return c, finished && err == nil, err
}

// FailRotation records why a connector could not save the offered secret. All its secrets
// stay valid.
func (s *Store) FailRotation(ctx context.Context, id, problem string) error {
	problem = text.Printable(problem, maxProblem)
	_, err := s.changeKnown(ctx, "recording why the connector's secret was not rotated", id,
		func(r *connectorRecord) (bool, error) {
			if r.Rotation == nil || r.Rotation.ByHand || r.Rotation.Problem == problem {
				return false, nil
			}
			r.Rotation.Problem = problem
			return true, nil
		})
	return err
}

// changeKnown is changeConnector for a connector of any account.
func (s *Store) changeKnown(ctx context.Context, doing, id string,
	change func(*connectorRecord) (bool, error)) (Connector, error) {
	known, _ := s.Connector(id)
	return s.changeConnector(ctx, doing, known.Account, id, change)
}

// changeConnector changes the record of a connector with change, and saves it if change
// returns true.
func (s *Store) changeConnector(
	ctx context.Context, doing, account, idOrName string, change func(*connectorRecord) (bool, error),
) (Connector, error) {
	return update(ctx, s, doing, func(t *tx) (Connector, error) {
		r, err := findConnector(t, account, idOrName)
		if err != nil {
			return Connector{}, err
		}
		write, err := change(r)
		if write {
			connectorKind.save(t, r)
		}
		return r.Connector, err
	})
}

// rotate begins a rotation, or restarts a pending one.
func (r *connectorRecord) rotate(s *Store) {
	since := s.time()
	if r.Rotation != nil {
		since = r.Rotation.Since
	}
	r.Rotation = &Rotation{Since: since}
}

// offer adds a new secret and returns its number. Of too many offers of the same gateway it
// drops the oldest.
func (r *connectorRecord) offer(n nextSecret) int64 {
	same := slices.DeleteFunc(slices.Clone(r.Next), func(o nextSecret) bool { return o.Shown || o.Edge != n.Edge })
	if !n.Shown && len(same) >= maxOffered {
		r.Next = slices.DeleteFunc(r.Next, func(o nextSecret) bool { return o == same[0] })
	}
	r.Offers++
	n.Number = r.Offers
	r.Next = append(r.Next, n)
	return n.Number
}

// finish makes the new secret with this number the record's own, and drops earlier ones.
func (r *connectorRecord) finish(number int64, now time.Time) bool {
	i := slices.IndexFunc(r.Next, func(n nextSecret) bool { return n.Number == number })
	if i < 0 {
		return false
	}
	r.Hash, r.Next = r.Next[i].Hash, r.Next[i+1:]
	r.Rotation, r.RotatedAt = nil, &now
	return true
}

// number returns the number of the new secret with this hash, or 0.
func (r *connectorRecord) number(hash digest) int64 {
	for _, n := range r.Next {
		if n.Hash == hash {
			return n.Number
		}
	}
	return 0
}
