package store

import (
	"context"
	"slices"

	"github.com/postern-dev/postern/connector/text"
)

const (
	// maxOffered bounds the secrets of one rotation that were offered on tunnels.
	// There is one for each process of the gateway that offered, and a connector
	// keeps the one of its last tunnels.
	maxOffered = 4
	// maxProblem bounds, in bytes, what a connector may report of its problem.
	maxProblem = 256

	makingSecret = "making a new secret of the connector"
)

// BeginRotation has a connector, given by id or name, be offered a new secret:
// the owner of its tunnel calls [Store.OfferSecret] when subscribers are called. A
// rotation that is under way begins again, without its problem.
func (s *Store) BeginRotation(ctx context.Context, account, idOrName string) (Connector, error) {
	return s.changeConnector(ctx, "rotating the secret of the connector", account, idOrName, func(r *connectorRecord) (bool, error) {
		r.rotate(s)
		r.ChangedBy = actor(ctx)
		return true, nil
	})
}

// ShowSecret returns a new secret of a connector, which cannot be shown again, for
// a person to bring there. The one that was shown before becomes invalid,
// and none is offered on the tunnel until [Store.BeginRotation].
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

// OfferSecret returns a new secret of a connector whose rotation is under way,
// to be offered on its tunnel. Those of earlier offers stay valid as well: the
// connector may have kept one of them, and not have been able to report it.
func (s *Store) OfferSecret(ctx context.Context, id string) (string, error) {
	secret, hash := newSecret("")
	_, err := s.changeKnown(ctx, makingSecret, id, func(r *connectorRecord) (bool, error) {
		if r.Rotation == nil || r.Rotation.ByHand {
			return false, Errorf(ErrConflict, "the connector %q is to be offered no new secret", r.Name)
		}
		if offered := r.offered(); len(offered) >= maxOffered {
			r.Next = slices.DeleteFunc(r.Next, func(n nextSecret) bool { return n == offered[0] })
		}
		r.Next = append(r.Next, nextSecret{Hash: hash})
		return true, nil
	})
	return secret, err
}

// IsNextSecret reports whether secret is one that would finish a rotation.
func (s *Store) IsNextSecret(id, secret string) bool {
	hash, ok := hashSecret("", secret)
	r, known := connectorKind.named(s.view.Load(), id)
	return ok && known && r.next(hash) >= 0
}

// FinishRotation makes a secret that was offered or shown the only one of the
// connector, which has it now. It reports false if it was none of these.
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

// FailRotation notes why a connector could not keep what it was offered. All its
// secrets stay valid.
func (s *Store) FailRotation(ctx context.Context, id, problem string) error {
	problem = text.Printable(problem, maxProblem)
	_, err := s.changeKnown(ctx, "noting why the connector's secret is not rotated", id, func(r *connectorRecord) (bool, error) {
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
	known, ok := s.Connector(id)
	if !ok {
		return Connector{}, Errorf(ErrNotFound, "there is no connector %.40q", id)
	}
	return s.changeConnector(ctx, doing, known.Account, id, change)
}

// changeConnector has change alter the record of a connector, and writes it if
// that reports true.
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

// rotate begins a rotation, or begins the one that is under way again.
func (r *connectorRecord) rotate(s *Store) {
	since := s.time()
	if r.Rotation != nil {
		since = r.Rotation.Since
	}
	r.Rotation = &Rotation{Since: since}
}

// next returns where a hash is among the new secrets, or -1.
func (r *connectorRecord) next(hash digest) int {
	return slices.IndexFunc(r.Next, func(n nextSecret) bool { return n.Hash == hash })
}

// offered returns the new secrets that were not shown to a person.
func (r *connectorRecord) offered() []nextSecret {
	return slices.DeleteFunc(slices.Clone(r.Next), func(n nextSecret) bool { return n.Shown })
}
