package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

type connectorRecord struct {
	header
	Connector
	Hash digest `json:"hash"`
	// Next are the new secrets of a rotation, the newest last: one for each
	// offer whose fate is not known.
	Next []nextSecret `json:"next,omitempty"`
}

// nextSecret is a secret that is valid in addition to that of the record.
type nextSecret struct {
	Hash  digest `json:"hash"`
	Shown bool   `json:"shown,omitempty"` // to a person
}

func (r *connectorRecord) place() key { return key{r.Account, r.ID} }

func (r *connectorRecord) check() error {
	if r.next(digest{}) >= 0 {
		return errNoHash
	}
	return checkHash(r.Hash)
}

// current returns the connector with when it was last seen.
func (r *connectorRecord) current() Connector {
	c := r.Connector
	c.LastSeenAt = r.use.last()
	return c
}

var connectorKind = &kind[connectorRecord, *connectorRecord]{
	dir: dirConnectors, prefix: prefixConnector, seenAt: dirConnectorsSeen,
	in: func(r *records) *collection[*connectorRecord] { return &r.connectors },
	change: func(_ *records, r *connectorRecord) Change {
		return Change{Kind: KindConnector, Account: r.Account, ID: r.ID, Name: r.Name}
	},
}

// CreateConnector makes a connector and returns it with its secret, which
// cannot be had again. The name must be free in the account.
func (s *Store) CreateConnector(ctx context.Context, account, name string) (Connector, string, error) {
	if err := checkConnectorName(name); err != nil {
		return Connector{}, "", err
	}
	secret, hash := newSecret("")
	r := s.newConnector(ctx, account, name, hash)
	err := s.update(ctx, "creating the connector", func(t *tx) error { return createConnector(t, r) })
	if err != nil {
		return Connector{}, "", err
	}
	return r.Connector, secret, nil
}

func (s *Store) newConnector(ctx context.Context, account, name string, hash digest) *connectorRecord {
	return &connectorRecord{Hash: hash, Connector: Connector{
		ID: newID(prefixConnector, s.now()), Account: account, Name: name, CreatedAt: s.time(), CreatedBy: actor(ctx),
	}}
}

func checkConnectorName(name string) error {
	if err := checkLabel("connector", name); err != nil {
		return err
	}
	if strings.HasPrefix(name, prefixConnector) {
		return Errorf(ErrInvalid, "the name of the connector, %q, begins as ids do: give another name", name)
	}
	return nil
}

func createConnector(t *tx, r *connectorRecord) error {
	if _, err := t.account(r.Account); err != nil {
		return err
	}
	if err := t.s.checkLimit(r.Account, KindConnector); err != nil {
		return err
	}
	name := connectorNamePath(r.Account, r.Name)
	if t.get(name).Exists() {
		return Errorf(ErrExists, "the account %q has a connector %q already: give another name, or remove that one first", r.Account, r.Name)
	}
	connectorKind.create(t, r)
	t.put(name, &nameRecord{ID: r.ID})
	t.mark(markAccount(r.Account))
	return nil
}

// RemoveConnector removes a connector, given by id or name, that no deployment
// uses; else it fails with ErrInUse and names those.
func (s *Store) RemoveConnector(ctx context.Context, account, idOrName string) (Connector, error) {
	return update(ctx, s, "removing the connector", func(t *tx) (Connector, error) {
		r, err := findConnector(t, account, idOrName)
		if err != nil {
			return Connector{}, err
		}
		// First its mark, then the deployments: when another one begins to
		// use it after they were read, the mark has changed.
		t.get(dirConnectorUses + r.ID)
		users, err := deploymentsOf(t, r.Connector)
		if err != nil {
			return Connector{}, err
		}
		if len(users) > 0 {
			return Connector{}, Errorf(ErrInUse, "the connector %q is in use by %s: point them to another connector, or remove them first",
				r.Name, someOf(users))
		}
		connectorKind.remove(t, account, r.ID)
		t.delete(dirConnectorUses+r.ID, connectorNamePath(account, r.Name))
		return r.Connector, nil
	})
}

// TouchConnector notes that a connector is online now. It does no I/O: the times
// are written together, and that of one connector once a minute at most.
func (s *Store) TouchConnector(id string) {
	if r, ok := s.view.Load().connectors.named(id); ok {
		s.touch(r.use, saveRest)
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
func findConnector(t *tx, account, idOrName string) (*connectorRecord, error) {
	id := idOrName
	if !checkID(prefixConnector, id) && checkLabel("connector", id) == nil && checkAccount(account) {
		var name nameRecord
		t.read(connectorNamePath(account, idOrName), &name)
		id = name.ID
	}
	r := connectorKind.load(t, account, id)
	if r == nil {
		return nil, Errorf(ErrNotFound, "there is no connector %.40q in the account %.40q", idOrName, account)
	}
	return r, nil
}

// deploymentsOf returns the names of the deployments that use a connector.
func deploymentsOf(t *tx, c Connector) ([]string, error) {
	var names []string
	for _, item := range t.items(deploymentKind.span(c.Account)) {
		d, err := deploymentKind.decode(item)
		if err != nil {
			return nil, err
		}
		if slices.Contains(d.Connectors, c.ID) {
			names = append(names, d.Name)
		}
	}
	return names, nil
}
