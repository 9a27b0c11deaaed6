package store

import (
	"context"
	"slices"

	"github.com/postern-dev/postern/connector/text"
)

const (
	// maxOffered bounds the secrets of one rotation that were offered on tunnels. Each
	// process of the gateway offers one, and a connector keeps one of the latest.
	maxOffered = 4
	// maxProblem bounds a connector's error message, in bytes.
	maxProblem = 256

	makingSecret = "creating a new secret for the connector"
)

// BeginRotation begins the rotation of a connector's secret, given by id or name. It
// notifies subscribers; the owner of the tunnel then calls [Store.OfferSecret]. A pending
// rotation starts again and its problem is cleared.
func (s *Store) BeginRotation(ctx context.Context, account, idOrName string) (Connector, error) {
	return s.changeConnector(ctx, "rotating the secret of the connector", account, idOrName, func(r *connectorRecord) (bool, error) {
		r.rotate(s)
		r.ChangedBy = actor(ctx)
		return true, nil
	})
}

// ShowSecret returns a new secret of a connector for a user to copy there. It cannot be
// shown again. A secret shown earlier becomes invalid, and none is offered on the tunnel
// until [Store.BeginRotation].
func (s *Store) ShowSecret(ctx context.Context, account, idOrName string) (Connector, string, error) {
	secret, hash := newSecret("")
	c, err := s.changeConnector(ctx, makingSecret, account, idOrName, func(r *connectorRecord) (bool, error) {
		r.rotate(s)
		r.ChangedBy = actor(ctx)
		r.Rotation.ByHand = true
		r.Next = slices.DeleteFunc(r.Next, func(n nextSecret) bool { return n.Shown })
		r.Next = append(r.Next, nextSecret{hash, true})
		return true, nil
	})
	return c, secret, err
}

// OfferSecret returns a new secret of a connector with a pending rotation, to be offered
// on its tunnel. Secrets offered earlier also stay valid: the connector may have saved one
// of them without being able to confirm it.
func (s *Store) OfferSecret(ctx context.Context, id string) (string, error) {
	secret, hash := newSecret("")
	_, err := s.changeKnown(ctx, makingSecret, id, func(r *connectorRecord) (bool, error) {
		if r.Rotation == nil || r.Rotation.ByHand {
			return false, Errorf(ErrConflict, "no rotation is pending for the connector %q", r.Name)
		}
		offered := slices.DeleteFunc(slices.Clone(r.Next), func(n nextSecret) bool { return n.Shown })
		if len(offered) >= maxOffered {
			r.Next = slices.DeleteFunc(r.Next, func(n nextSecret) bool { return n == offered[0] })
		}
		r.Next = append(r.Next, nextSecret{Hash: hash})
		return true, nil
	})
	return secret, err
}

// IsNextSecret reports whether secret would finish a rotation.
func (s *Store) IsNextSecret(id, secret string) bool {
	hash, ok := hashSecret("", secret)
	r, known := connectorKind.named(s.view.Load(), id)
	return ok && known && r.next(hash) >= 0
}

// FinishRotation makes an offered or shown secret the only one of the connector. It
// returns false if the secret was neither offered nor shown.
func (s *Store) FinishRotation(ctx context.Context, id, secret string) (Connector, bool, error) {
	hash, _ := hashSecret("", secret)
	finished := false
	c, err := s.changeKnown(ctx, "finishing the rotation of the connector's secret", id, func(r *connectorRecord) (bool, error) {
		at := r.next(hash)
		if finished = at >= 0; !finished {
			return false, nil
		}
		now := s.time()
		r.Hash, r.Next, r.Rotation, r.RotatedAt = r.Next[at].Hash, nil, nil, &now
		return true, nil
	})
	return c, finished && err == nil, err
}

// FailRotation records why a connector could not save the offered secret. All its secrets
// stay valid.
func (s *Store) FailRotation(ctx context.Context, id, problem string) error {
	problem = text.Printable(problem, maxProblem)
	_, err := s.changeKnown(ctx, "recording why the connector's secret was not rotated", id, func(r *connectorRecord) (bool, error) {
		if r.Rotation == nil || r.Rotation.ByHand || r.Rotation.Problem == problem {
			return false, nil
		}
		r.Rotation.Problem = problem
		return true, nil
	})
	return err
}

// changeKnown is changeConnector for a connector of any account.
func (s *Store) changeKnown(ctx context.Context, doing, id string, change func(*connectorRecord) (bool, error)) (Connector, error) {
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

// next returns the index of a hash in the new secrets, or -1.
func (r *connectorRecord) next(hash digest) int {
	return slices.IndexFunc(r.Next, func(n nextSecret) bool { return n.Hash == hash })
}
