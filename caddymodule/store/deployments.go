package store

import (
	"context"
	"fmt"

	"github.com/postern-dev/postern/caddymodule/scope"
)

// SetDeployment creates the deployment of this account and name or replaces
// it, and returns it as it is now. The connector may be given by id or name,
// and must exist in the account. The times in d are ignored. What was learned
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
	return nil
}

func (s *Store) buildDeployment(ctx context.Context, d Deployment) (Deployment, Txn, error) {
	owner, err := s.account(ctx, d.Account)
	if err != nil {
		return Deployment{}, Txn{}, err
	}
	connector, c, err := s.findConnector(ctx, d.Account, d.Connector)
	if err != nil {
		return Deployment{}, Txn{}, err
	}
	old, err := s.kv.Get(ctx, deploymentPath(d.Account, d.Name))
	if err != nil {
		return Deployment{}, Txn{}, err
	}
	d.Connector, d.UpdatedAt = c.ID, s.time()
	d.CreatedAt = d.UpdatedAt
	if old.Exists() {
		before, err := decodeDeployment(old)
		if err != nil {
			return Deployment{}, Txn{}, err
		}
		d.CreatedAt = before.CreatedAt
	}
	record, err := encode(old.Key, deploymentRecord{version{recordVersion}, d})
	if err != nil {
		return Deployment{}, Txn{}, err
	}
	// The mark makes a RemoveConnector that has looked before this look again.
	mark, err := encode(connectorUsesPath(c.ID), version{recordVersion})
	return d, Txn{
		If:   []Compare{unchanged(owner), unchanged(connector), unchanged(old)},
		Then: []Op{record, mark, Delete(calibrationPath(d.Account, d.Name))},
	}, err
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
