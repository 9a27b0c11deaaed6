package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

type connectorRecord struct {
	header
	Connector
	Hash digest `json:"hash"`
	// PreviousHash is that of the secret before the last rotation.
	PreviousHash digest `json:"previous_hash,omitzero"`
}

func (r *connectorRecord) key() recordKey { return recordKey{r.Account, r.ID} }
func (r *connectorRecord) label() string  { return r.Name }

func (r *connectorRecord) check() error {
	if (r.PreviousUntil == nil) != (r.PreviousHash == digest{}) || r.PreviousUntil != nil && r.RotatedAt == nil {
		return errors.New("its previous secret is incomplete")
	}
	return checkHash(r.Hash)
}

// current returns the connector with its last-seen time.
func (r *connectorRecord) current() Connector {
	c := r.Connector
	if c.LastSeenAt = r.use.last(); c.LastSeenAt != nil {
		c.LastTunnel = r.use.tunnel.Load()
	}
	return c
}

var connectorKind = &kind[connectorRecord, *connectorRecord]{
	dir: "connectors/", prefix: prefixConnector, seenAt: "connectors_seen/", what: KindConnector,
	collection: func(r *records) *collection[*connectorRecord] { return &r.connectors },
	index:      func(r *connectorRecord) digest { return hashConnectorName(r.Account, r.Name) },
}

// hashConnectorName returns the digest by which a connector of this name is found.
func hashConnectorName(account, name string) digest {
	return sha256.Sum256([]byte(account + "/" + name))
}

// FindConnector returns the connector of an account with this id or name.
func (s *Store) FindConnector(account, idOrName string) (Connector, bool) {
	v := s.view.Load()
	r, ok := connectorKind.byID(v, idOrName)
	if !ok {
		r, ok = connectorKind.byHash(v, hashConnectorName(account, idOrName))
	}
	return r.current(), ok && r.Account == account
}

// Connector returns the connector with this id, of any account.
func (s *Store) Connector(id string) (Connector, bool) {
	r, ok := connectorKind.byID(s.view.Load(), id)
	return r.current(), ok
}

// Connectors returns the connectors of an account in order of creation.
func (s *Store) Connectors(account string) []Connector {
	return list(connectorKind.owned(s.view.Load(), account),
		func(r *connectorRecord) (Connector, bool) { return r.current(), true })
}

var errWrongSecret = Errorf(ErrUnauthenticated,
	"invalid tunnel token: its connector was removed, or its secret is wrong")

// AuthenticateConnector returns the connector with this id if the secret is valid. Otherwise it
// fails with ErrUnauthenticated, or with ErrRotated if the secret has ended. It takes no lock.
func (s *Store) AuthenticateConnector(id, secret string) (Connector, error) {
	hash, valid := hashSecret("", secret)
	if !valid {
		return Connector{}, errWrongSecret
	}
	c, _, err := s.CheckConnector(id, hash)
	return c, err
}

// CheckConnector is AuthenticateConnector for the SHA-256 of a secret. It also returns until when
// the secret is valid; the zero time: without an end. It compares hashes of random secrets, so its
// time does not depend on them.
func (s *Store) CheckConnector(id string, secretHash [sha256.Size]byte) (Connector, time.Time, error) {
	r, known := connectorKind.byID(s.view.Load(), id)
	if !known {
		return Connector{}, time.Time{}, errWrongSecret
	}
	until, err := r.secretEnd(secretHash, s.now())
	if err != nil {
		return Connector{}, time.Time{}, err
	}
	return r.Connector, until, nil
}

// SecretHash returns the SHA-256 of a secret, as MatchConnector passes it on.
func SecretHash(secret string) [sha256.Size]byte {
	hash, _ := hashSecret("", secret)
	return hash
}

// MatchConnector reports whether match accepts the SHA-256 of a valid secret of this
// connector.
func (s *Store) MatchConnector(id string, match func(secretHash []byte) bool) bool {
	r, known := connectorKind.byID(s.view.Load(), id)
	if !known {
		return false
	}
	return match(r.Hash[:]) || r.previousValid(s.now()) && match(r.PreviousHash[:])
}

// CreateConnector creates a connector and returns it with its secret, which is not
// shown again. The name must be unique in the account.
func (s *Store) CreateConnector(ctx context.Context, account, name string) (Connector, string, error) {
	if err := checkName("connector", prefixConnector, name); err != nil {
		return Connector{}, "", err
	}
	secret, hash := newSecret("")
	r := s.newConnector(ctx, account, name, hash)
	c, err := update(ctx, s, "creating the connector",
		func(t *tx) (Connector, error) { return r.Connector, createConnector(t, r) })
	return c, secret, err
}

func (s *Store) newConnector(ctx context.Context, account, name string, hash digest) *connectorRecord {
	return &connectorRecord{Hash: hash, Connector: Connector{
		ID: newID(prefixConnector, s.now()), Account: account, Name: name, CreatedAt: s.time(), CreatedBy: actor(ctx),
	}}
}

func createConnector(t *tx, r *connectorRecord) error {
	if err := connectorKind.add(t, r); err != nil {
		return err
	}
	return takeConnectorName(t, r.Account, r.Name, r.ID)
}

// takeConnectorName records the name of a connector, unless another connector has it.
func takeConnectorName(t *tx, account, name, id string) error {
	path := connectorNamePath(account, name)
	if t.get(path).Exists() {
		return InField("name", Errorf(ErrExists, "another connector has the name %q: choose another name, or remove that "+
			"connector first", name))
	}
	t.put(path, &nameRecord{ID: id})
	return nil
}

// RenameConnector changes the name of a connector, given by id or name. The new one must be
// unique in the account.
func (s *Store) RenameConnector(ctx context.Context, account, idOrName, name string) (Connector, error) {
	if err := checkName("connector", prefixConnector, name); err != nil {
		return Connector{}, err
	}
	return update(ctx, s, "renaming the connector", func(t *tx) (Connector, error) {
		r, err := findConnector(t, account, idOrName)
		if err != nil {
			return Connector{}, err
		}
		if r.Name != name {
			t.delete(connectorNamePath(account, r.Name))
			if err := takeConnectorName(t, account, name, r.ID); err != nil {
				return Connector{}, err
			}
			r.Name = name
			connectorKind.save(t, r)
		}
		return r.Connector, nil
	})
}

// RemoveConnector removes a connector, given by id or name. If deployments use it, it
// fails with ErrInUse and lists them.
func (s *Store) RemoveConnector(ctx context.Context, account, idOrName string) (Connector, error) {
	return update(ctx, s, "removing the connector", func(t *tx) (Connector, error) {
		r, err := findConnector(t, account, idOrName)
		if err != nil {
			return Connector{}, err
		}
		// Read the mark before the deployments: a deployment that begins to use the
		// connector after they were read has changed the mark.
		t.get(dirConnectorUses + r.ID)
		var deployments []string
		for _, d := range deploymentKind.loadAll(t, account) {
			if slices.Contains(d.Connectors, r.ID) {
				deployments = append(deployments, d.Name)
			}
		}
		if len(deployments) > 0 {
			return Connector{}, Errorf(ErrInUse,
				"the connector %q is in use by %s: move them to another connector, or remove them first",
				r.Name, listSome(deployments))
		}
		connectorKind.remove(t, account, r.ID)
		t.delete(dirConnectorUses+r.ID, connectorNamePath(account, r.Name))
		t.confirmed()
		return r.Connector, nil
	})
}

// TouchConnector records that a connector is online now, and what its tunnel shows; nil: as before. It does no I/O:
// times are written in batches, and at most once a minute per connector.
func (s *Store) TouchConnector(id string, tunnel *LastTunnel) {
	if r, ok := connectorKind.byID(s.view.Load(), id); ok && tunnel != nil {
		r.use.tunnel.Store(tunnel)
	}
	connectorKind.touch(s, id)
}

// listSome lists up to five names and the number of further ones.
func listSome(names []string) string {
	const shown = 5
	if more := len(names) - shown; more > 1 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), more)
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
		return nil, Errorf(ErrNotFound, "connector %.40q not found in the account %.40q", idOrName, account)
	}
	return r, nil
}
