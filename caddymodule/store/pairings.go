package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
)

// maxOpenPairings bounds the claim codes of an account that can be used.
const maxOpenPairings = 20

// maxPairings bounds the pairings of an account with those that are kept for a day
// after their end.
const maxPairings = 1000

// maxDeviceUpstreams bounds what is kept of the upstreams a device names.
const maxDeviceUpstreams = 64

// Pairings returns the pairings of an account in the order of their creation,
// with those that have ended for a day.
func (s *Store) Pairings(account string) []Pairing {
	var out []Pairing
	now := s.now()
	for _, r := range s.view.Load().pairings.all() {
		if r.Account == account {
			out = append(out, r.asOf(now))
		}
	}
	slices.SortFunc(out, func(a, b Pairing) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Pairing returns a pairing of an account by its id or its code.
func (s *Store) Pairing(account, idOrCode string) (Pairing, bool) {
	r, ok := s.pairingOf(idOrCode)
	if !ok || r.Account != account {
		return Pairing{}, false
	}
	return r.asOf(s.now()), true
}

func (s *Store) pairingOf(idOrCode string) (*pairingRecord, bool) {
	v := s.view.Load()
	if r, ok := v.pairings.get(idOrCode); ok {
		return r, true
	}
	hash, ok := hashCode(idOrCode)
	if !ok {
		return nil, false
	}
	r, ok := v.pairingsByCode.get(hash)
	return r, ok
}

// CreatePairing makes a pairing and returns it with its claim code, which
// cannot be had again. An account may have 20 that are open.
func (s *Store) CreatePairing(ctx context.Context, account, createdBy string) (Pairing, string, error) {
	code := newCode()
	hash, _ := hashCode(code)
	now := s.time()
	r := pairingRecord{version: version{recordVersion}, CodeHash: hexDigest(hash), Pairing: Pairing{
		ID: newID(prefixPairing, s.now()), Account: account, CreatedBy: cleanLabel(createdBy, maxLabel),
		State: PairingWaiting, CreatedAt: now, ExpiresAt: now.Add(PairingLife),
	}}
	err := s.update(ctx, func() (Txn, error) {
		owner, err := s.account(ctx, account)
		if err != nil {
			return Txn{}, err
		}
		// First the mark, then the pairings: of two that are made at once,
		// one looks again.
		mark, err := s.kv.Get(ctx, markPairings(account))
		if err != nil {
			return Txn{}, err
		}
		if err := s.checkRoom(ctx, account); err != nil {
			return Txn{}, err
		}
		t := Txn{If: []Compare{unchanged(owner), unchanged(mark), {Key: pairingPath(account, r.ID)}}}
		return t.put(put{pairingPath(account, r.ID), r}, put{mark.Key, version{recordVersion}})
	})
	if err != nil {
		return Pairing{}, "", fmt.Errorf("starting the pairing: %w", err)
	}
	return r.Pairing, code, nil
}

func (s *Store) checkRoom(ctx context.Context, account string) error {
	snap, err := s.kv.Range(ctx, Prefix(pairingPath(account, "")))
	if err != nil {
		return err
	}
	open, now := 0, s.now()
	for _, item := range snap.Items {
		r, err := decodePairing(item)
		if err != nil {
			return err
		}
		if r.asOf(now).open() {
			open++
		}
	}
	if len(snap.Items) >= maxPairings {
		return fail(ErrLimit, "the account %q started %d pairings within a day: wait, or use tunnel tokens instead", account, len(snap.Items))
	}
	if open >= maxOpenPairings {
		return fail(ErrConflict, "the account %q has %d open pairings already: finish or deny some of them, or wait until they expire", account, open)
	}
	return nil
}

// ClaimPairing binds a claim code to a device, which is from then on whoever
// has the secret: 43 letters and digits, that become the connector's secret.
// With the same secret it returns the pairing as it is now, whatever became
// of it; look at the state. Else it fails with ErrUnauthenticated when the code
// is unknown, ErrExpired when it has ended, ErrUsed when another device has it
// and ErrDenied when it was denied.
func (s *Store) ClaimPairing(ctx context.Context, code, secret string, d Device) (Pairing, error) {
	hash, ok := hashSecret("", secret)
	if !ok || strings.ContainsFunc(secret, notBase62) {
		return Pairing{}, fail(ErrInvalid, "the secret of the device must have %d letters and digits: run the newest connector", secretDigits)
	}
	unknown := fail(ErrUnauthenticated, "the claim code is unknown: check it for typing errors, or start a new pairing")
	known, ok := s.pairingOf(code)
	if !ok || known.ID == code {
		return Pairing{}, unknown
	}
	device := s.cleanDevice(d)
	var r pairingRecord
	err := s.update(ctx, func() (Txn, error) {
		item, err := s.kv.Get(ctx, pairingPath(known.Account, known.ID))
		if err != nil {
			return Txn{}, err
		}
		if !item.Exists() {
			return Txn{}, unknown
		}
		if r, err = decodePairing(item); err != nil {
			return Txn{}, err
		}
		if r.DeviceHash != nil && *r.DeviceHash == hexDigest(hash) {
			return Txn{}, s.reach(ctx, item.ModRevision)
		}
		switch state := r.asOf(s.now()).State; state {
		case PairingDenied:
			return Txn{}, fail(ErrDenied, "the pairing with this claim code was denied: start a new one")
		case PairingExpired:
			return Txn{}, fail(ErrExpired, "the claim code has expired: start a new pairing")
		case PairingPending, PairingApproved:
			return Txn{}, fail(ErrUsed, "another device has used the claim code already: start a new pairing for this one")
		}
		bound := hexDigest(hash)
		r.State, r.Device, r.DeviceHash = PairingPending, &device, &bound
		return Txn{If: []Compare{unchanged(item)}}.put(put{item.Key, r})
	})
	if err != nil {
		return Pairing{}, fmt.Errorf("using the claim code: %w", err)
	}
	return r.asOf(s.now()), nil
}

func notBase62(r rune) bool {
	return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
}

// cleanDevice bounds what a device says of itself, which nobody has checked.
func (s *Store) cleanDevice(d Device) Device {
	clean := Device{
		Hostname: cleanLabel(d.Hostname, maxLabel), OS: cleanLabel(d.OS, 64), Version: cleanLabel(d.Version, 64),
		Address: cleanLabel(d.Address, 64), Fingerprint: cleanLabel(d.Fingerprint, 64),
		Upstreams: []string{}, At: s.time(),
	}
	for _, name := range d.Upstreams[:min(len(d.Upstreams), maxDeviceUpstreams)] {
		clean.Upstreams = append(clean.Upstreams, cleanLabel(name, maxLabel))
	}
	return clean
}
