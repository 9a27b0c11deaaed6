package manage

import (
	"context"
	"errors"
	"slices"

	"github.com/postern-dev/postern/caddymodule/store"
)

// Made lists the records that outlast a management token: the keys that it created or
// rotated, unless they are revoked, the connectors that it created, rotated or replaced, and the deployments
// that it set last. Each may still give access to a thief of the token.
type Made struct {
	Keys        []MadeRecord `json:"keys"`
	Connectors  []MadeRecord `json:"connectors"`
	Deployments []MadeRecord `json:"deployments"`
}

// MadeRecord is a record of [Made]. The id of a deployment is its name.
type MadeRecord struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Problem is why it could not be removed.
	Problem string `json:"problem,omitempty"`
}

// all returns all records.
func (m Made) all() []MadeRecord { return slices.Concat(m.Keys, m.Connectors, m.Deployments) }

// Count returns the number of records.
func (m Made) Count() int { return len(m.all()) }

// Problems returns the records that could not be removed.
func (m Made) Problems() []MadeRecord {
	return slices.DeleteFunc(m.all(), func(r MadeRecord) bool { return r.Problem == "" })
}

// MadeByToken lists the records that a management token created or changed. The token
// may have been revoked.
func (s *Service) MadeByToken(ctx context.Context, id string) (Made, error) {
	account, err := s.account(ctx)
	if err != nil {
		return Made{}, err
	}
	return s.madeBy(account, id), nil
}

func (s *Service) madeBy(account, token string) Made {
	m := Made{Keys: []MadeRecord{}, Connectors: []MadeRecord{}, Deployments: []MadeRecord{}}
	if token == "" { // records of users have no token
		return m
	}
	for _, k := range s.store.Keys(account) {
		if k.RevokedAt == nil && (k.CreatedBy.Token == token || k.RotatedBy != nil && k.RotatedBy.Token == token) {
			m.Keys = append(m.Keys, MadeRecord{ID: k.ID, Name: k.Name})
		}
	}
	for _, c := range s.store.Connectors(account) {
		if c.CreatedBy.Token == token || c.ChangedBy.Token == token {
			m.Connectors = append(m.Connectors, MadeRecord{ID: c.ID, Name: c.Name})
		}
	}
	for _, d := range s.store.Deployments(account) {
		if d.ChangedBy.Token == token {
			m.Deployments = append(m.Deployments, MadeRecord{ID: d.Name, Name: d.Name})
		}
	}
	return m
}

// removeEach removes records by id, and sets Problem where that fails. It takes and returns
// whether edges have not confirmed the latest write: earlier ones are confirmed with it.
func removeEach[T any](
	ctx context.Context, s *Service, unconfirmed error, records []MadeRecord, remove func(ctx context.Context, id string) (T, error),
) error {
	for i, r := range records {
		_, err := remove(ctx, r.ID)
		switch {
		case store.Made(err):
			unconfirmed = err
		case errors.Is(err, store.ErrNotFound): // it is gone already
		case Hidden(err):
			s.log.Error("failed to remove a record of a management token", "id", r.ID, "error", err)
			_, records[i].Problem = Explain(err)
		default:
			records[i].Problem = err.Error()
		}
	}
	return unconfirmed
}
