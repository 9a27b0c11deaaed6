package store

import (
	"context"
	"slices"
	"time"

	"github.com/postern-dev/postern/connector/text"
)

const (
	// maxOffered bounds the secrets that one gateway offers in a rotation. Each of its
	// processes offers one, after it has confirmed the secret of the connector's hello. So
	// the connector has one of the latest offers, or one of another gateway.
	maxOffered = 4
	// maxProblem bounds a connector's error message, in bytes.
	maxProblem = 256

	makingSecret = "creating a new secret for the connector"
)

// Offer is a new secret of a connector.
type Offer struct {
	Number int64 // from 1; higher than those of earlier offers to the connector
	Secret string
}

// BeginRotation begins the rotation of the secret of a connector, given by id or name. It
// notifies subscribers; the gateway with the tunnel then calls [Store.OfferSecret]. A pending
// rotation starts again, without its problem.
func (s *Store) BeginRotation(ctx context.Context, account, idOrName string) (Connector, error) {
	return s.changeConnector(ctx, "rotating the secret of the connector", account, idOrName,
		func(r *connectorRecord) (bool, error) {
			r.rotate(s)
			r.ChangedBy = actor(ctx)
			return true, nil
		})
}

// ShowSecret returns a new secret of a connector, which a user copies there. It cannot be
// shown again. A secret shown earlier becomes invalid, and no secret is offered on the tunnel
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

// OfferNumber returns the number of an offered or shown secret of a connector, 0 if the secret
// is unknown or outdated.
func (s *Store) OfferNumber(id, secret string) int64 {
	hash, ok := hashSecret("", secret)
	r, known := connectorKind.byID(s.view.Load(), id)
	if !ok || !known {
		return 0
	}
	return r.number(hash)
}

// FinishRotation is called when the connector has stored the offered or shown secret with this
// number, and makes it the connector's own. Earlier ones become invalid. Later ones stay valid,
// since the connector may have stored an offer of another gateway meanwhile. It returns false
// if the number is unknown or outdated.
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
	change func(*connectorRecord) (bool, error),
) (Connector, error) {
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

// offer adds a new secret and returns its number. If the gateway has made too many offers, it
// drops the oldest one.
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
