package manage

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/pairing"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

// endedPairings is how long a pairing is listed after its end.
const endedPairings = time.Hour

// Pairing is a pairing as it is listed.
type Pairing struct {
	store.Pairing
	// Code is the claim code while it may still be used, if this process made
	// it: codes are not stored.
	Code string `json:"code,omitempty"`
	// Connected: the device is there and waits.
	Connected bool `json:"connected"`
	// Limited: the code waits for its device while some codes are refused
	// unchecked, since too many wrong ones come from many networks: the device may
	// have to try more than once.
	Limited bool `json:"limited,omitempty"`
	// Namesake is a connector of the name that the device would get while it
	// waits: probably the same machine, which is paired again.
	Namesake *Namesake `json:"namesake,omitempty"`
}

// Namesake is a connector whose place a device may get.
type Namesake struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	State string `json:"state"`
}

// StartPairing makes a claim code. It is refused while the gateway's public
// address is not known: a device could be let in but not connect.
func (s *Service) StartPairing(ctx context.Context, account string) (Pairing, error) {
	return change(ctx, s, account, func(account string) (Pairing, write, error) {
		desk, err := s.pairingDesk()
		if err != nil {
			return Pairing{}, write{}, err
		}
		p, code, err := desk.Start(ctx, account, CallerFrom(ctx).by())
		return Pairing{Pairing: p, Code: code}, write{"pairing.start", p.ID, "", nil}, err
	})
}

// Pairings lists the pairings of an account, the newest first: the open ones,
// and those that ended within the last hour.
func (s *Service) Pairings(account string) ([]Pairing, error) {
	account, err := s.known(account)
	if err != nil {
		return nil, err
	}
	since := s.now().Add(-endedPairings)
	pairings, live := []Pairing{}, s.sessions()
	for _, p := range s.store.Pairings(account) {
		if pairingEnd(p).After(since) {
			pairings = append(pairings, s.pairingOf(p, live))
		}
	}
	slices.SortFunc(pairings, func(a, b Pairing) int { return strings.Compare(b.ID, a.ID) }) // ids are in order of creation
	return pairings, nil
}

// CheckFingerprint fails unless the device of a pairing has this fingerprint, in
// whatever letter case and with any blanks. A device stays that of its pairing.
func (s *Service) CheckFingerprint(ctx context.Context, account, codeOrID, fingerprint string) error {
	account, err := s.account(ctx, account)
	if err != nil {
		return err
	}
	p, ok := s.store.Pairing(account, codeOrID)
	if !ok || p.Device == nil {
		return nil // deciding about it fails, and the error says why
	}
	if plainFingerprint(p.Device.Fingerprint) != plainFingerprint(fingerprint) {
		return faultf(store.ErrConflict, "the device that waits has another fingerprint, %s; deny it, unless that is what its terminal shows", p.Device.Fingerprint)
	}
	return nil
}

func plainFingerprint(s string) string { return strings.ToLower(strings.Join(strings.Fields(s), "")) }

// ApprovePairing lets the waiting device of a pairing in, as a connector that
// is called name; "" calls it like its host.
func (s *Service) ApprovePairing(ctx context.Context, account, codeOrID, name string) (Pairing, error) {
	return s.letIn(ctx, "pairing.approve", account, func(account, by string) (store.Pairing, store.Connector, error) {
		return s.store.ApprovePairing(ctx, account, codeOrID, name, by)
	})
}

// ReplaceConnector lets the waiting device of a pairing in, in the place of a
// connector, given by id or name. What leads to it stays; its old tunnel is closed,
// and its old token is invalid.
func (s *Service) ReplaceConnector(ctx context.Context, account, codeOrID, connector string) (Pairing, error) {
	return s.letIn(ctx, "pairing.replace", account, func(account, by string) (store.Pairing, store.Connector, error) {
		return s.store.ReplaceConnector(ctx, account, codeOrID, connector, by)
	})
}

// letIn lets the waiting device of a pairing in.
func (s *Service) letIn(ctx context.Context, operation, account string, decide func(account, by string) (store.Pairing, store.Connector, error)) (Pairing, error) {
	return change(ctx, s, account, func(account string) (Pairing, write, error) {
		if _, err := s.pairingDesk(); err != nil {
			return Pairing{}, write{}, err
		}
		p, con, err := decide(account, CallerFrom(ctx).by())
		return s.pairingOf(p, s.sessions()), write{operation, p.ID, con.Name, []any{"connector", con.ID}}, err
	})
}

// DenyPairing refuses the device of a pairing, or calls its code off while no
// device has used it.
func (s *Service) DenyPairing(ctx context.Context, account, codeOrID string) (Pairing, error) {
	return change(ctx, s, account, func(account string) (Pairing, write, error) {
		p, err := s.store.DenyPairing(ctx, account, codeOrID, CallerFrom(ctx).by())
		name := ""
		if p.Device != nil {
			name = p.Device.Hostname
		}
		return s.pairingOf(p, s.sessions()), write{"pairing.deny", p.ID, name, nil}, err
	})
}

// pairingDesk returns the desk if devices can be paired.
func (s *Service) pairingDesk() (*pairing.Service, error) {
	if s.desk == nil {
		return nil, faultf(ErrNotReady, "devices cannot be paired with this gateway")
	}
	return s.desk, s.needPublic()
}

// pairingOf adds to a record what the desk knows of it.
func (s *Service) pairingOf(p store.Pairing, live map[string]tunnel.Info) Pairing {
	v := Pairing{Pairing: p}
	if s.desk == nil || p.State != store.PairingWaiting && p.State != store.PairingPending {
		return v
	}
	v.Code, _ = s.desk.Code(p.ID)
	v.Limited = p.State == store.PairingWaiting && s.desk.Limited()
	v.Connected = s.desk.Connected(p.ID)
	if p.Device == nil {
		return v
	}
	if c, ok := s.store.Namesake(p.Account, *p.Device); ok {
		v.Namesake = &Namesake{ID: c.ID, Name: c.Name, State: Offline}
		if _, online := live[c.ID]; online {
			v.Namesake.State = Online
		}
	}
	return v
}

// pairingEnd is when a pairing ended or will end by itself.
func pairingEnd(p store.Pairing) time.Time {
	return *cmp.Or(p.DecidedAt, &p.ExpiresAt)
}
