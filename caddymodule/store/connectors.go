package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// CreateConnector makes a connector and returns it with its secret, which
// cannot be had again. The name must be free in the account.
func (s *Store) CreateConnector(ctx context.Context, account, name string) (Connector, string, error) {
	if err := checkConnectorName(name); err != nil {
		return Connector{}, "", err
	}
	secret := newSecret("")
	hash, _ := hashSecret("", secret)
	now := s.time()
	r := connectorRecord{version: version{recordVersion}, Hash: hexDigest(hash), Connector: Connector{
		ID: newID(prefixConnector, s.now()), Account: account, Name: name, CreatedAt: now, CreatedBy: actor(ctx),
	}}
	err := s.update(ctx, func() (Txn, error) { return s.buildConnector(ctx, r) })
	if err != nil {
		return Connector{}, "", fmt.Errorf("creating the connector: %w", err)
	}
	return r.Connector, secret, nil
}

func checkConnectorName(name string) error {
	if err := checkLabel("connector", name); err != nil {
		return err
	}
	if strings.HasPrefix(name, prefixConnector) {
		return fail(ErrInvalid, "the name of the connector, %q, begins as ids do: give another name", name)
	}
	return nil
}

func (s *Store) buildConnector(ctx context.Context, r connectorRecord) (Txn, error) {
	owner, err := s.account(ctx, r.Account)
	if err == nil {
		err = s.checkLimit(r.Account, KindConnector)
	}
	if err != nil {
		return Txn{}, err
	}
	taken, err := s.kv.Get(ctx, connectorNamePath(r.Account, r.Name))
	if err != nil {
		return Txn{}, err
	}
	if taken.Exists() {
		return Txn{}, fail(ErrExists, "the account %q has a connector %q already: give another name, or remove that one first", r.Account, r.Name)
	}
	t := Txn{If: []Compare{unchanged(owner), unchanged(taken), {Key: connectorPath(r.Account, r.ID)}}}
	return t.put(
		put{connectorPath(r.Account, r.ID), r},
		put{taken.Key, connectorNameRecord{version{recordVersion}, r.ID}},
		put{markAccount(r.Account), version{recordVersion}},
	)
}

// RemoveConnector removes a connector, given by id or name, that no deployment
// uses; else it fails with ErrInUse and names those.
func (s *Store) RemoveConnector(ctx context.Context, account, idOrName string) (Connector, error) {
	var removed Connector
	err := s.update(ctx, func() (Txn, error) {
		item, r, err := s.findConnector(ctx, account, idOrName)
		if err != nil {
			return Txn{}, err
		}
		removed = r.Connector
		// First its mark, then the deployments: when another one begins to
		// use it after they were read, the mark has changed.
		uses, err := s.kv.Get(ctx, connectorUsesPath(r.ID))
		if err != nil {
			return Txn{}, err
		}
		users, err := s.deploymentsOf(ctx, r.Connector)
		if err != nil {
			return Txn{}, err
		}
		if len(users) > 0 {
			return Txn{}, fail(ErrInUse, "the connector %q is in use by %s: point them to another connector, or remove them first",
				r.Name, someOf(users))
		}
		return Txn{
			If:   []Compare{unchanged(item), unchanged(uses)},
			Then: []Op{Delete(item.Key), Delete(uses.Key), Delete(connectorNamePath(account, r.Name)), Delete(connectorSeenPath(account, r.ID))},
		}, nil
	})
	if err != nil {
		return Connector{}, fmt.Errorf("removing the connector: %w", err)
	}
	return removed, nil
}

// TouchConnector notes that a connector is online now. It does no I/O: the times
// are written together, and that of one connector once a minute at most.
func (s *Store) TouchConnector(id string) {
	if r, ok := s.view.Load().connectors.get(id); ok {
		s.note(r.use)
	}
}

// someOf lists names for a message that is to be read: five, and how many more.
func someOf(names []string) string {
	const most = 5
	if more := len(names) - most; more > 1 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// findConnector reads a connector of the account by its id or its name.
func (s *Store) findConnector(ctx context.Context, account, idOrName string) (Item, connectorRecord, error) {
	unknown := fail(ErrNotFound, "there is no connector %.40q in the account %.40q", idOrName, account)
	if checkLabel("connector", idOrName) != nil || !checkAccount(account) {
		return Item{}, connectorRecord{}, unknown
	}
	id := idOrName
	if !checkID(prefixConnector, id) {
		name, err := s.kv.Get(ctx, connectorNamePath(account, idOrName))
		if err != nil {
			return Item{}, connectorRecord{}, err
		}
		if !name.Exists() {
			return Item{}, connectorRecord{}, unknown
		}
		var r connectorNameRecord
		if err := decode(name, &r); err != nil {
			return Item{}, connectorRecord{}, err
		}
		id = r.ID
	}
	item, err := s.kv.Get(ctx, connectorPath(account, id))
	if err != nil {
		return Item{}, connectorRecord{}, err
	}
	if !item.Exists() {
		return Item{}, connectorRecord{}, unknown
	}
	r, err := decodeConnector(item)
	return item, r, err
}

// deploymentsOf returns the names of the deployments that use a connector.
func (s *Store) deploymentsOf(ctx context.Context, c Connector) ([]string, error) {
	snap, err := s.kv.Range(ctx, Prefix(deploymentPath(c.Account, "")))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, item := range snap.Items {
		d, err := decodeDeployment(item)
		if err != nil {
			return nil, err
		}
		if slices.Contains(d.Connectors, c.ID) {
			names = append(names, d.Name)
		}
	}
	return names, nil
}
