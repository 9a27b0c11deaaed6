package store

import (
	"context"
	"crypto/subtle"
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

func (r *connectorRecord) place() key    { return key{r.Account, r.ID} }
func (r *connectorRecord) label() string { return r.Name }

func (r *connectorRecord) state() string {
	if r.RotatedAt == nil {
		return ""
	}
	return r.RotatedAt.String()
}

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
	dir: dirConnectors, prefix: prefixConnector, seenAt: dirConnectorsSeen, what: KindConnector,
	in: func(r *records) *collection[*connectorRecord] { return &r.connectors },
}

// Connector returns the connector with this id, of any account.
func (s *Store) Connector(id string) (Connector, bool) {
	r, ok := connectorKind.named(s.view.Load(), id)
	return r.current(), ok
}

// Connectors returns the connectors of an account in the order of their
// creation.
func (s *Store) Connectors(account string) []Connector {
	return list(connectorKind.of(s.view.Load(), account), func(r *connectorRecord) (Connector, bool) { return r.current(), true })
}

// AuthenticateConnector returns the connector with this id if secret is its
// secret, or the new one of a rotation, else ErrUnauthenticated. It takes no
// lock, and the same time for all wrong secrets.
func (s *Store) AuthenticateConnector(id, secret string) (Connector, error) {
	r, known := connectorKind.named(s.view.Load(), id) // an unknown one has a hash of no secret
	hash, valid := hashSecret("", secret)
	same := r.matches(func(own []byte) bool { return subtle.ConstantTimeCompare(hash[:], own) == 1 })
	if !known || !valid || !same {
		return Connector{}, Errorf(ErrUnauthenticated, "the tunnel token is not valid: its connector was removed, or its secret is wrong")
	}
	return r.Connector, nil
}

// MatchConnector reports whether match accepts the SHA-256 of a secret that
// AuthenticateConnector accepts of this connector.
func (s *Store) MatchConnector(id string, match func(secretHash []byte) bool) bool {
	r, known := connectorKind.named(s.view.Load(), id)
	return known && r.matches(match)
}

// matches reports whether match accepts one of the hashes. It asks for all.
func (r *connectorRecord) matches(match func(hash []byte) bool) bool {
	same := match(r.Hash[:])
	for _, next := range r.Next {
		same = match(next.Hash[:]) || same
	}
	return same
}

// CreateConnector creates a connector and returns it with its secret, which is
// not shown again. The name must be free in the account.
func (s *Store) CreateConnector(ctx context.Context, account, name string) (Connector, string, error) {
	if err := checkConnectorName(name); err != nil {
		return Connector{}, "", err
	}
	secret, hash := newSecret("")
	r := s.newConnector(ctx, account, name, hash)
	c, err := update(ctx, s, "creating the connector", func(t *tx) (Connector, error) { return r.Connector, createConnector(t, r) })
	return c, secret, err
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
	if err := connectorKind.add(t, r); err != nil {
		return err
	}
	name := connectorNamePath(r.Account, r.Name)
	if t.get(name).Exists() {
		return Errorf(ErrExists, "the account %q has a connector %q already: give another name, or remove that one first", r.Account, r.Name)
	}
	t.put(name, &nameRecord{ID: r.ID})
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
		var users []string
		for _, d := range deploymentKind.within(t, account) {
			if slices.Contains(d.Connectors, r.ID) {
				users = append(users, d.Name)
			}
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
	if r, ok := connectorKind.named(s.view.Load(), id); ok {
		s.touch(r.use, saveRest)
	}
}

// someOf lists five names, and how many more there are.
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
