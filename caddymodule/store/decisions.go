package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ApprovePairing makes the device that waits with a claim code a connector of
// the account, both or neither. Without a name the connector gets that of the
// device's host, with a number if it is taken. Only a pending pairing can be
// approved: others fail with ErrExpired or ErrConflict, so of two approvals
// one wins.
func (s *Store) ApprovePairing(ctx context.Context, account, idOrCode, connectorName, by string) (Pairing, Connector, error) {
	if connectorName != "" {
		if err := checkConnectorName(connectorName); err != nil {
			return Pairing{}, Connector{}, err
		}
	}
	now := s.time()
	c := connectorRecord{version: version{recordVersion}, Connector: Connector{
		ID: newID(prefixConnector, s.now()), Account: account, Name: connectorName, CreatedAt: now, CreatedBy: actor(ctx),
	}}
	p, err := s.decide(ctx, account, idOrCode, func(r *pairingRecord) (Txn, error) {
		if r.State == PairingWaiting {
			return Txn{}, errNoDevice()
		}
		c.Hash = *r.DeviceHash
		r.State, r.Connector, c.Pairing = PairingApproved, c.ID, r.ID
		r.decided(now, by)
		if connectorName != "" {
			return s.buildConnector(ctx, c)
		}
		return s.buildNamed(ctx, &c, r.Device.Hostname)
	})
	if err != nil {
		return Pairing{}, Connector{}, fmt.Errorf("approving the pairing: %w", err)
	}
	return p, c.Connector, nil
}

// ReplaceConnector gives the device that waits with a claim code the place of a
// connector of the account, given by id or name: its id, its name and what leads
// to it stay, its credentials from before are good for nothing.
func (s *Store) ReplaceConnector(ctx context.Context, account, idOrCode, connector, by string) (Pairing, Connector, error) {
	now := s.time()
	var c connectorRecord
	p, err := s.decide(ctx, account, idOrCode, func(r *pairingRecord) (Txn, error) {
		if r.State == PairingWaiting {
			return Txn{}, errNoDevice()
		}
		item, old, err := s.findConnector(ctx, account, connector)
		if err != nil {
			return Txn{}, err
		}
		// A record of its own: nothing of the old credentials shall survive.
		c = connectorRecord{version: version{recordVersion}, Connector: old.Connector, Hash: *r.DeviceHash}
		c.Rotation, c.RotatedAt, c.ChangedBy = nil, nil, actor(ctx)
		r.State, r.Connector, r.Replaced, c.Pairing = PairingApproved, c.ID, true, r.ID
		r.decided(now, by)
		return Txn{If: []Compare{unchanged(item)}}.put(put{item.Key, c})
	})
	if err != nil {
		return Pairing{}, Connector{}, fmt.Errorf("giving the device a connector's place: %w", err)
	}
	return p, c.Connector, nil
}

func errNoDevice() error {
	return fail(ErrConflict, "no device waits for approval: none has used the claim code yet")
}

// Namesake returns the connector of an account that has the name that a device
// would get after its host: it is probably the same machine.
func (s *Store) Namesake(account string, d Device) (Connector, bool) {
	base := hostName(d.Hostname)
	for _, r := range s.view.Load().connectors.all() {
		if r.Account == account && r.Name == base {
			return r.Connector, true
		}
	}
	return Connector{}, false
}

// DenyPairing sends the device that waits with a claim code away, or cancels
// the code if there is none.
func (s *Store) DenyPairing(ctx context.Context, account, idOrCode, by string) (Pairing, error) {
	now := s.time()
	p, err := s.decide(ctx, account, idOrCode, func(r *pairingRecord) (Txn, error) {
		r.State = PairingDenied
		r.decided(now, by)
		return Txn{}, nil
	})
	if err != nil {
		return Pairing{}, fmt.Errorf("denying the pairing: %w", err)
	}
	return p, nil
}

func (p *Pairing) decided(at time.Time, by string) {
	p.DecidedAt, p.DecidedBy = &at, cleanLabel(by, maxLabel)
}

// decide has f change an open pairing, and writes it with what f returns.
func (s *Store) decide(ctx context.Context, account, idOrCode string, f func(*pairingRecord) (Txn, error)) (Pairing, error) {
	unknown := fail(ErrNotFound, "there is no such pairing in the account %.40q: check the code, or start a new pairing", account)
	known, ok := s.pairingOf(idOrCode)
	if !ok || known.Account != account {
		return Pairing{}, unknown
	}
	var r pairingRecord
	err := s.update(ctx, func() (Txn, error) {
		item, err := s.kv.Get(ctx, pairingPath(account, known.ID))
		if err != nil {
			return Txn{}, err
		}
		if !item.Exists() {
			return Txn{}, unknown
		}
		if r, err = decodePairing(item); err != nil {
			return Txn{}, err
		}
		if now := r.asOf(s.now()); !now.open() {
			return Txn{}, errDecided(now)
		}
		t, err := f(&r)
		if err == nil {
			t.If = append(t.If, unchanged(item))
			t, err = t.put(put{item.Key, r})
		}
		return s.unlessStale(ctx, item, t, err)
	})
	return r.Pairing, err
}

func errDecided(p Pairing) error {
	if p.State == PairingExpired {
		return fail(ErrExpired, "the claim code has expired: start a new pairing")
	}
	by := ""
	if p.DecidedBy != "" {
		by = fmt.Sprintf(" by %q", p.DecidedBy)
	}
	return fail(ErrConflict, "the pairing was %s already%s: start a new one for another device", p.State, by)
}

// buildNamed is buildConnector with a name after the host's. It looks for
// another one when somebody takes that at the same time.
func (s *Store) buildNamed(ctx context.Context, c *connectorRecord, hostname string) (t Txn, err error) {
	for range maxAttempts {
		if c.Name, err = s.freeName(ctx, c.Account, hostname); err != nil {
			return Txn{}, err
		}
		if t, err = s.buildConnector(ctx, *c); !errors.Is(err, ErrExists) {
			return t, err
		}
	}
	return Txn{}, err
}

// hostName is the name of a connector after its host's, leaving room for a
// number.
func hostName(hostname string) string {
	base := cleanLabel(hostname, maxLabel-8)
	if checkConnectorName(base) != nil {
		return "connector"
	}
	return base
}

// freeName returns a name for a connector that none of the account has, made
// from the name of a host.
func (s *Store) freeName(ctx context.Context, account, hostname string) (string, error) {
	base := hostName(hostname)
	snap, err := s.kv.Range(ctx, Prefix(connectorNamePath(account, base)))
	if err != nil {
		return "", err
	}
	taken := make(map[string]bool, len(snap.Items))
	for _, item := range snap.Items {
		taken[strings.TrimPrefix(item.Key, connectorNamePath(account, ""))] = true
	}
	name := base
	for n := 2; taken[name]; n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}
	return name, nil
}
