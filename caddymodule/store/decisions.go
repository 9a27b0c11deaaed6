package store

import (
	"context"
	"fmt"

	"github.com/postern-dev/postern/connector/text"
)

// ApprovePairing makes the device that waits with a pairing code a connector of the
// account. The name defaults to the device's host name, with a number if that is taken.
// If the pairing is not pending, it fails with ErrExpired or ErrConflict.
func (s *Store) ApprovePairing(
	ctx context.Context, account, idOrCode, connectorName, decidedBy string,
) (Pairing, Connector, error) {
	if connectorName != "" {
		if err := checkName("connector", prefixConnector, connectorName); err != nil {
			return Pairing{}, Connector{}, err
		}
	}
	c := s.newConnector(ctx, account, connectorName, digest{})
	p, err := s.decide(ctx, "approving the pairing", account, idOrCode, decidedBy, func(t *tx, r *pairingRecord) error {
		c.Hash = *r.DeviceHash
		r.Connector, c.Pairing = c.ID, r.ID
		if connectorName != "" {
			return createConnector(t, c)
		}
		return createForHost(t, c, r.Device.Hostname)
	})
	return p, c.Connector, err
}

// ReplaceConnector makes the device that waits with a pairing code replace a connector of
// the account, given by id or name. The connector keeps its id, name and deployments;
// its old credentials become invalid.
func (s *Store) ReplaceConnector(
	ctx context.Context, account, idOrCode, connector, decidedBy string,
) (Pairing, Connector, error) {
	var c *connectorRecord
	p, err := s.decide(ctx, "replacing the connector", account, idOrCode, decidedBy, func(t *tx, r *pairingRecord) error {
		old, err := findConnector(t, account, connector)
		if err != nil {
			return err
		}
		// Start from a new record, so that no old credentials remain.
		c = &connectorRecord{Connector: old.Connector, Hash: *r.DeviceHash}
		c.RotatedAt, c.PreviousUntil, c.ChangedBy = nil, nil, actor(ctx)
		r.Connector, r.Replaced, c.Pairing = c.ID, true, r.ID
		connectorKind.save(t, c)
		t.confirmed()
		return nil
	})
	if !Committed(err) {
		return Pairing{}, Connector{}, err
	}
	return p, c.Connector, err
}

// Namesake returns the connector of an account with the default name of a device: it
// is probably the same machine.
func (s *Store) Namesake(account string, d Device) (Connector, bool) {
	return s.FindConnector(account, hostName(d.Hostname))
}

// DenyPairing denies the device that waits with a pairing code, or cancels the code if no
// device is waiting.
func (s *Store) DenyPairing(ctx context.Context, account, idOrCode, decidedBy string) (Pairing, error) {
	return s.decide(ctx, "denying the pairing", account, idOrCode, decidedBy, nil)
}

// decide approves an open pairing with approve, or denies it if that is nil. It records
// the time and the author of the decision.
func (s *Store) decide(
	ctx context.Context, doing, account, idOrCode, decidedBy string, approve func(*tx, *pairingRecord) error,
) (Pairing, error) {
	now := s.time()
	unknown := Errorf(ErrNotFound,
		"the pairing was not found in the account %.40q: check the code, or start a new pairing", account)
	known, ok, err := FindFresh(ctx, s, idOrCode, s.pairingByIDOrCode)
	switch {
	case err != nil:
		return Pairing{}, err
	case !ok || known.Account != account:
		return Pairing{}, fmt.Errorf("%s: %w", doing, unknown)
	}
	return update(ctx, s, doing, func(t *tx) (Pairing, error) {
		r := pairingKind.load(t, account, known.ID)
		if r == nil {
			return Pairing{}, unknown
		}
		before := r.asOf(s.now())
		switch {
		case !before.open():
			return Pairing{}, errDecided(before)
		case approve == nil:
			r.State = PairingDenied
		case before.State == PairingWaiting:
			return Pairing{}, Errorf(ErrConflict, "no device is waiting for approval: the pairing code has not been used yet")
		default:
			r.State = PairingApproved
			if err := approve(t, r); err != nil {
				return Pairing{}, err
			}
		}
		r.DecidedAt, r.DecidedBy = &now, text.Printable(decidedBy, maxLabel)
		pairingKind.save(t, r)
		return r.Pairing, nil
	})
}

func errDecided(p Pairing) error {
	if p.State == PairingExpired {
		return Errorf(ErrExpired, "the pairing code has expired: start a new pairing")
	}
	author := ""
	if p.DecidedBy != "" {
		author = fmt.Sprintf(" by %q", p.DecidedBy)
	}
	return Errorf(ErrConflict, "the pairing was already %s%s: start a new one for another device", p.State, author)
}

// createForHost is createConnector with a name from that of a host. It adds a number if the name is taken.
func createForHost(t *tx, c *connectorRecord, hostname string) error {
	taken := func() bool {
		_, known := t.s.FindConnector(c.Account, c.Name)
		return known || t.get(connectorNamePath(c.Account, c.Name)).Exists()
	}
	c.Name = hostName(hostname)
	for n := 2; taken(); n++ {
		c.Name = fmt.Sprintf("%s-%d", hostName(hostname), n)
	}
	return createConnector(t, c)
}

// hostName returns the default name of a connector on a host, leaving room for a number.
func hostName(hostname string) string {
	base := text.Printable(hostname, maxLabel-8)
	if checkName("connector", prefixConnector, base) != nil {
		return "connector"
	}
	return base
}
