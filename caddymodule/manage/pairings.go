package manage

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/downloads"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

// endedPairings is how long a pairing is listed after its end.
const endedPairings = time.Hour

// Pairing is a listed pairing.
type Pairing struct {
	store.Pairing
	// Code is the pairing code while it is usable.
	Code string `json:"code,omitempty" column:"CODE"`
	// Commands connect a machine, while the code is usable.
	Commands *downloads.Commands `json:"commands,omitempty"`
	// Connected: the device is connected and waits. Of a device at another edge, this is not known, and true.
	Connected bool `json:"connected"`
	// Limited: the code is unused, and some codes are refused unchecked, as many networks try wrong ones. The device
	// may have to retry.
	Limited bool `json:"limited,omitempty"`
	// Namesake is a connector with the name of the waiting device: probably the same
	// machine, which is paired again.
	Namesake *Namesake `json:"namesake,omitempty"`
}

// Namesake is a connector that a device may replace.
type Namesake struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	State string `json:"state"`
}

// StartPairing creates a pairing code. It is refused while the public address is not
// known: an approved device could not connect.
func (s *Service) StartPairing(ctx context.Context) (Pairing, error) {
	return change(ctx, s, func(account string) (Pairing, write, error) {
		if err := s.needPublic(); err != nil {
			return Pairing{}, write{}, err
		}
		p, code, err := s.store.CreatePairing(ctx, account, CallerFrom(ctx).label())
		return Pairing{Pairing: p, Code: code, Commands: s.commands(code)}, write{"pairing.start", p.ID, "", nil}, err
	})
}

// Pairings lists the pairings of the account, the newest first: the open ones,
// and those that ended within the last hour.
func (s *Service) Pairings(ctx context.Context) ([]Pairing, error) {
	live, since := s.sessions(), s.now().Add(-endedPairings)
	pairings, err := list(ctx, s, s.store.Pairings, func(p store.Pairing) Pairing { return s.pairingOf(ctx, p, live) })
	pairings = slices.DeleteFunc(pairings, func(p Pairing) bool { return !p.End().After(since) })
	// ids are in order of creation
	slices.SortFunc(pairings, func(a, b Pairing) int { return strings.Compare(b.ID, a.ID) })
	return pairings, err
}

// End returns when the pairing was decided, or when it expires.
func (p Pairing) End() time.Time { return *cmp.Or(p.DecidedAt, &p.ExpiresAt) }

// ApprovePairing asks for the approval of a waiting device. The pairing is in the body,
// not in the path: it may be a pairing code, and paths are logged.
type ApprovePairing struct {
	Pairing     string `json:"pairing" need:"required" flag:"-" help:"The code or the id of the pairing"`
	Name        string `json:"name" need:"filled" help:"The connector's name (default: the device's host name)"`
	Replace     string `json:"replace" need:"filled" help:"The name or id of the connector that the device replaces"`
	Fingerprint string `json:"fingerprint" need:"filled" help:"The fingerprint that the device shows"`
}

// ApprovePairing approves the waiting device of a pairing.
func (s *Service) ApprovePairing(ctx context.Context, a ApprovePairing) (Pairing, error) {
	if a.Name != "" && a.Replace != "" {
		return Pairing{}, badRequest("fields %q and %q cannot be used together; a replaced connector keeps its name",
			"name", "replace")
	}
	return change(ctx, s, func(account string) (Pairing, write, error) {
		// The device of a pairing never changes. Without one, the decision fails.
		if p, ok := s.store.Pairing(account, a.Pairing); ok && p.Device != nil && a.Fingerprint != "" &&
			plainFingerprint(p.Device.Fingerprint) != plainFingerprint(a.Fingerprint) {
			return Pairing{}, write{}, faultf(store.ErrConflict,
				"the waiting device has a different fingerprint, %s; deny it unless its terminal shows this one",
				p.Device.Fingerprint)
		}
		if err := s.needPublic(); err != nil {
			return Pairing{}, write{}, err
		}
		operation, connector, decide := "pairing.approve", a.Name, s.store.ApprovePairing
		if a.Replace != "" {
			operation, connector, decide = "pairing.replace", a.Replace, s.store.ReplaceConnector
		}
		p, con, err := decide(ctx, account, a.Pairing, connector, CallerFrom(ctx).label())
		return s.pairingOf(ctx, p, s.sessions()), write{operation, p.ID, con.Name, []any{"connector", con.ID}}, err
	})
}

func plainFingerprint(s string) string { return strings.ToLower(strings.Join(strings.Fields(s), "")) }

// DenyPairing names a pairing by code or id.
type DenyPairing struct {
	Pairing string `json:"pairing" need:"required" flag:"-" help:"The code or the id of the pairing"`
}

// DenyPairing denies the device of a pairing, or cancels its code while no
// device has used it.
func (s *Service) DenyPairing(ctx context.Context, d DenyPairing) (Pairing, error) {
	return change(ctx, s, func(account string) (Pairing, write, error) {
		p, err := s.store.DenyPairing(ctx, account, d.Pairing, CallerFrom(ctx).label())
		name := ""
		if p.Device != nil {
			name = p.Device.Hostname
		}
		return s.pairingOf(ctx, p, s.sessions()), write{"pairing.deny", p.ID, name, nil}, err
	})
}

// commands returns the commands for a pairing code, nil while the URL is not known.
func (s *Service) commands(code string) *downloads.Commands {
	folder, site := s.Downloads()
	if site.URL == "" {
		return nil
	}
	c := downloads.CommandsFor(site, folder.Archives(), code)
	return &c
}

// pairingOf adds the state in the pairing service to a record.
func (s *Service) pairingOf(ctx context.Context, p store.Pairing, live map[string]tunnel.Info) Pairing {
	v := Pairing{Pairing: p}
	if p.State != store.PairingWaiting && p.State != store.PairingPending {
		return v
	}
	v.Code = s.store.PairingCode(ctx, p.ID)
	if p.State == store.PairingWaiting && v.Code != "" {
		v.Commands = s.commands(v.Code)
	}
	v.Limited = p.State == store.PairingWaiting && s.pairing.Limited()
	v.Connected = s.pairing.Connected(p)
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
