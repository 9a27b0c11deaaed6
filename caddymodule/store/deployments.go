package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/postern-dev/postern/caddymodule/scope"
)

const (
	maxConnectors  = 32 // of a deployment: all of them are in one transaction
	maxConcurrency = 1_000_000
)

// SetDeployment creates the deployment of this account and name or replaces
// it, and returns it as it is now. The connectors may be given by id or name,
// and must exist in the account; doubled ones count once. The times in d,
// and by whom it was set, are ignored. What was learned
// about the deployment's tokens is forgotten: another model may answer now.
func (s *Store) SetDeployment(ctx context.Context, d Deployment) (Deployment, error) {
	if err := checkDeployment(d); err != nil {
		return Deployment{}, err
	}
	var set Deployment
	err := s.update(ctx, func() (t Txn, err error) {
		set, t, err = s.buildDeployment(ctx, d)
		return t, err
	})
	if err != nil {
		return Deployment{}, fmt.Errorf("setting the deployment: %w", err)
	}
	return set, nil
}

func checkDeployment(d Deployment) error {
	if err := scope.CheckName(d.Name); err != nil {
		return fail(ErrInvalid, "%v", err)
	}
	if d.Upstream != "" {
		if err := checkLabel("upstream", d.Upstream); err != nil {
			return err
		}
	}
	if d.Model != "" {
		if err := checkLabel("upstream's model", d.Model); err != nil {
			return err
		}
	}
	switch {
	case len(d.Connectors) == 0:
		return fail(ErrInvalid, "the deployment %q needs a connector that leads to its model", d.Name)
	case len(d.Connectors) > maxConnectors:
		return fail(ErrInvalid, "the deployment %q has %d connectors, but there may be %d at most", d.Name, len(d.Connectors), maxConnectors)
	case d.MaxConcurrency < 0 || d.MaxConcurrency > maxConcurrency:
		return fail(ErrInvalid, "max_concurrency is %d, but must be between 1 and %d, or 0 for no bound", d.MaxConcurrency, maxConcurrency)
	}
	if err := d.Options.Check(); err != nil {
		return fail(ErrInvalid, "%v", err)
	}
	return nil
}

func (s *Store) buildDeployment(ctx context.Context, d Deployment) (Deployment, Txn, error) {
	owner, err := s.account(ctx, d.Account)
	if err != nil {
		return Deployment{}, Txn{}, err
	}
	d, t, err := s.useConnectors(ctx, d)
	if err != nil {
		return Deployment{}, Txn{}, err
	}
	old, err := s.kv.Get(ctx, deploymentPath(d.Account, d.Name))
	if err != nil {
		return Deployment{}, Txn{}, err
	}
	d.UpdatedAt = s.time()
	d.CreatedAt = d.UpdatedAt
	d.CreatedBy, d.ChangedBy = actor(ctx), actor(ctx)
	if old.Exists() {
		before, err := decodeDeployment(old)
		if err != nil {
			return Deployment{}, Txn{}, err
		}
		d.CreatedAt, d.CreatedBy = before.CreatedAt, before.CreatedBy
	} else if err := s.checkLimit(d.Account, KindDeployment); err != nil {
		return Deployment{}, Txn{}, err
	}
	record, err := encode(old.Key, deploymentRecord{version{recordVersion}, d})
	if err != nil {
		return Deployment{}, Txn{}, err
	}
	t.If = append(t.If, unchanged(owner), unchanged(old))
	t.Then = append(t.Then, record, Delete(calibrationPath(d.Account, d.Name)))
	return d, t, nil
}

// useConnectors finds the connectors of d, which are ids in what it returns,
// and begins the transaction that d needs to use them.
func (s *Store) useConnectors(ctx context.Context, d Deployment) (Deployment, Txn, error) {
	var ids []string
	var t Txn
	for _, idOrName := range d.Connectors {
		connector, c, err := s.findConnector(ctx, d.Account, idOrName)
		if err != nil {
			return Deployment{}, Txn{}, err
		}
		if slices.Contains(ids, c.ID) {
			continue
		}
		ids = append(ids, c.ID)
		// The mark makes a RemoveConnector that has looked before this look again.
		mark, err := encode(connectorUsesPath(c.ID), version{recordVersion})
		if err != nil {
			return Deployment{}, Txn{}, err
		}
		t.If, t.Then = append(t.If, unchanged(connector)), append(t.Then, mark)
	}
	d.Connectors = ids
	return d, t, nil
}

// RemoveDeployment removes the deployment and returns it as it was.
func (s *Store) RemoveDeployment(ctx context.Context, account, name string) (Deployment, error) {
	unknown := fail(ErrNotFound, "there is no deployment %.140q in the account %.40q", name, account)
	if scope.CheckName(name) != nil || !checkAccount(account) {
		return Deployment{}, unknown
	}
	var removed Deployment
	err := s.update(ctx, func() (Txn, error) {
		item, err := s.kv.Get(ctx, deploymentPath(account, name))
		if err != nil {
			return Txn{}, err
		}
		if !item.Exists() {
			return Txn{}, unknown
		}
		if removed, err = decodeDeployment(item); err != nil {
			return Txn{}, err
		}
		return Txn{If: []Compare{unchanged(item)}, Then: []Op{Delete(item.Key), Delete(calibrationPath(account, name))}}, nil
	})
	if err != nil {
		return Deployment{}, fmt.Errorf("removing the deployment: %w", err)
	}
	return removed, nil
}
