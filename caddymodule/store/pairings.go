package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postern-dev/postern/connector/text"
)

// The states of a pairing. A waiting or pending pairing expires by time alone.
const (
	PairingWaiting  = "waiting"  // the code has not been used
	PairingPending  = "pending"  // a device waits for a decision
	PairingApproved = "approved" // the device is a connector now
	PairingDenied   = "denied"
	PairingExpired  = "expired"
)

// PairingLife is how long a pairing code can be used and decided on, and a set-up code traded.
const PairingLife = 15 * time.Minute

// Pairing is a pairing code and its result.
type Pairing struct {
	ID        string     `json:"id" column:"ID"`
	Account   string     `json:"account"`
	CreatedBy string     `json:"created_by"`
	State     string     `json:"state"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt time.Time  `json:"expires_at"`
	DecidedAt *time.Time `json:"decided_at"`
	DecidedBy string     `json:"decided_by,omitempty"`
	Device    *Device    `json:"device"`              // nil: the code has not been used
	Connector string     `json:"connector,omitempty"` // id, once approved
	Replaced  bool       `json:"replaced,omitempty"`  // an existing connector was replaced
}

// Device is what a device reports about itself when it uses a pairing code, and its
// address.
type Device struct {
	Hostname    string    `json:"hostname" column:"DEVICE"`
	OS          string    `json:"os" column:"OS"`
	Version     string    `json:"version" column:"VERSION"`
	Address     string    `json:"address" column:"ADDRESS"`
	Fingerprint string    `json:"fingerprint" column:"FINGERPRINT"`
	Upstreams   []string  `json:"upstreams"`
	At          time.Time `json:"at"`
	// Edge is the gateway of a cluster where the device waits.
	Edge string `json:"edge,omitempty"`
}

// open reports whether the pairing waits for a device or a decision.
func (p Pairing) open() bool { return p.State == PairingWaiting || p.State == PairingPending }

// asOf returns the pairing at the given time: it may have expired.
func (p Pairing) asOf(now time.Time) Pairing {
	if p.open() && !now.Before(p.ExpiresAt) {
		p.State = PairingExpired
	}
	return p
}

type pairingRecord struct {
	header
	Pairing
	CodeHash   digest  `json:"code_hash"`
	Sealed     []byte  `json:"sealed,omitempty"`      // the code
	DeviceHash *digest `json:"device_hash,omitempty"` // hash of the secret of the device that used the code
}

func (r *pairingRecord) key() recordKey { return recordKey{r.Account, r.ID} }
func (r *pairingRecord) state() string  { return r.State }

func (r *pairingRecord) check() error {
	switch r.State {
	case PairingWaiting, PairingDenied:
	case PairingPending, PairingApproved:
		if r.DeviceHash == nil || r.Device == nil {
			return errors.New("it has no device")
		}
	default:
		return errors.New("its state is unknown")
	}
	return checkHash(r.CodeHash)
}

var pairingKind = &kind[pairingRecord, *pairingRecord]{
	dir: "pairings/", prefix: prefixPairing, what: KindPairing, remains: true,
	collection: func(r *records) *collection[*pairingRecord] { return &r.pairings },
	index:      func(r *pairingRecord) digest { return r.CodeHash },
}

// maxOpenPairings bounds the open pairings of an account.
const maxOpenPairings = 20

// maxPairings bounds all pairings of an account, including those kept for a day after
// their end.
const maxPairings = 1000

// maxDeviceUpstreams bounds the stored upstreams of a device.
const maxDeviceUpstreams = 64

// Pairings returns the pairings of an account in order of creation, including those that
// ended within the last day.
func (s *Store) Pairings(account string) []Pairing {
	now := s.now()
	return list(pairingKind.owned(s.view.Load(), account),
		func(r *pairingRecord) (Pairing, bool) { return r.asOf(now), true })
}

// Pairing returns a pairing of an account by its id or its code.
func (s *Store) Pairing(account, idOrCode string) (Pairing, bool) {
	r, ok := s.pairingByIDOrCode(idOrCode)
	if !ok || r.Account != account {
		return Pairing{}, false
	}
	return r.asOf(s.now()), true
}

// FindPairing returns the pairing with this code, of any account.
func (s *Store) FindPairing(code string) (Pairing, bool) {
	r, ok := s.pairingByCode(code)
	return r.asOf(s.now()), ok
}

// MatchPairing returns the id of the undecided pairing, of any account, whose code has a hash that
// match accepts.
func (s *Store) MatchPairing(match func(codeHash []byte) bool) (id string, ok bool) {
	now := s.now()
	for r := range pairingKind.all(&s.view.Load().records) {
		p := r.asOf(now)
		if p.open() && match(r.CodeHash[:]) {
			return p.ID, true
		}
	}
	return "", false
}

func (s *Store) pairingByCode(code string) (*pairingRecord, bool) {
	return pairingKind.byHash(s.view.Load(), hashCode(prefixPair, code))
}

func (s *Store) pairingByIDOrCode(idOrCode string) (*pairingRecord, bool) {
	if r, ok := pairingKind.byID(s.view.Load(), idOrCode); ok {
		return r, true
	}
	return s.pairingByCode(idOrCode)
}

// CreatePairing creates a pairing and returns it with its pairing code. An account may have 20 open pairings.
func (s *Store) CreatePairing(ctx context.Context, account, createdBy string) (Pairing, string, error) {
	code, now := newCode(prefixPair), s.time()
	sealer, err := s.Sealer(ctx)
	if err != nil {
		return Pairing{}, "", fmt.Errorf("starting the pairing: %w", err)
	}
	r := &pairingRecord{CodeHash: hashCode(prefixPair, code), Pairing: Pairing{
		ID: newID(prefixPairing, s.now()), Account: account, CreatedBy: text.Printable(createdBy, maxLabel),
		State: PairingWaiting, CreatedAt: now, ExpiresAt: now.Add(PairingLife),
	}}
	r.Sealed = sealer.Seal(codePurpose(r.ID), []byte(code))
	p, err := update(ctx, s, "starting the pairing", func(t *tx) (Pairing, error) {
		if _, err := t.account(account); err != nil {
			return Pairing{}, err
		}
		// Read the mark before the pairings: of two concurrent writes, one tries
		// again.
		t.get(markPairings(account))
		pairingKind.create(t, r)
		t.mark(markPairings(account))
		return r.Pairing, checkPairingLimits(t, account)
	})
	return p, code, err
}

// PairingCode returns the code of an open pairing, "" if the pairing is not open or the store does not answer.
func (s *Store) PairingCode(ctx context.Context, id string) string {
	r, _ := pairingKind.byID(s.view.Load(), id)
	sealer, err := s.Sealer(ctx)
	if err != nil || !r.asOf(s.now()).open() {
		return ""
	}
	code, _ := sealer.Open(codePurpose(id), r.Sealed)
	return string(code)
}

func codePurpose(id string) string { return "code of " + id }

func checkPairingLimits(t *tx, account string) error {
	open, now := 0, t.s.now()
	all := pairingKind.loadAll(t, account)
	for _, r := range all {
		if r.asOf(now).open() {
			open++
		}
	}
	if len(all) >= maxPairings {
		return Errorf(ErrLimit, "the account %q started %d pairings within a day: wait, or use tunnel tokens instead",
			account, len(all))
	}
	if open >= maxOpenPairings {
		return Errorf(ErrConflict, "the account %q already has %d open pairings: "+
			"finish or deny some of them, or wait until they expire", account, open)
	}
	return nil
}

// ClaimPairing binds a pairing code to a device by its secret, which becomes the connector's
// secret. If the code is already bound to this secret, it returns the pairing in any state, and
// notes the edge of the device. Else it may fail with ErrUnauthenticated (unknown code),
// ErrExpired, ErrUsed or ErrDenied, without texts for users.
func (s *Store) ClaimPairing(ctx context.Context, code, secret string, d Device) (Pairing, error) {
	hash, ok := hashSecret("", secret)
	notBase62 := func(r rune) bool { return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') }
	if !ok || strings.ContainsFunc(secret, notBase62) {
		return Pairing{}, Errorf(ErrInvalid,
			"the secret of the device must have %d letters and digits: update the connector", secretDigits)
	}
	known, ok, err := FindFresh(ctx, s, code, s.pairingByCode)
	switch {
	case err != nil:
		return Pairing{}, err
	case !ok:
		return Pairing{}, ErrUnauthenticated
	}
	device := s.cleanDevice(d)
	return update(ctx, s, "using the pairing code", func(t *tx) (Pairing, error) {
		r := pairingKind.load(t, known.Account, known.ID)
		if r == nil {
			return Pairing{}, ErrUnauthenticated
		}
		switch {
		case r.DeviceHash == nil || *r.DeviceHash != hash:
			if err := errClaimed[r.asOf(s.now()).State]; err != nil {
				return Pairing{}, err
			}
			bound := hash
			r.State, r.Device, r.DeviceHash = PairingPending, &device, &bound
			pairingKind.save(t, r)
		case r.State == PairingPending && r.Device.Edge != device.Edge:
			r.Device.Edge = device.Edge
			pairingKind.save(t, r)
		}
		return r.asOf(s.now()), nil
	})
}

// errClaimed maps the state of a pairing to the error for another device that uses its code.
var errClaimed = map[string]error{
	PairingDenied: ErrDenied, PairingExpired: ErrExpired, PairingPending: ErrUsed, PairingApproved: ErrUsed,
}

// cleanDevice sanitizes and bounds what a device reports about itself.
func (s *Store) cleanDevice(d Device) Device {
	clean := Device{
		Hostname: text.Printable(d.Hostname, maxLabel), OS: text.Printable(d.OS, 64), Version: text.Printable(d.Version, 64),
		Address: text.Printable(d.Address, 64), Fingerprint: text.Printable(d.Fingerprint, 64),
		Upstreams: []string{}, At: s.time(),
	}
	for _, name := range d.Upstreams[:min(len(d.Upstreams), maxDeviceUpstreams)] {
		clean.Upstreams = append(clean.Upstreams, text.Printable(name, maxLabel))
	}
	if s.edge != localEdge {
		clean.Edge = s.edge
	}
	return clean
}

// codeAlphabet is Crockford's base32. It omits I, L and O, which are easily misread,
// and U, to avoid words.
const codeAlphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

const (
	prefixPair = "PAIR-" // of pairing codes
	prefixUse  = "USE-"  // of set-up codes
	codeDigits = 8       // of five bits each
)

// newCode returns a code: 40 random bits as PAIR-XXXX-XXXX, short enough to type. Guessing is limited by the life of
// the code and by the caller.
func newCode(prefix string) string {
	var digits [codeDigits]byte
	rand.Read(digits[:]) // never fails, see its documentation
	for i := range digits {
		digits[i] = codeAlphabet[digits[i]%32]
	}
	return formatCode(prefix, string(digits[:]))
}

func formatCode(prefix, digits string) string {
	return prefix + digits[:codeDigits/2] + "-" + digits[codeDigits/2:]
}

// NormalizeCode returns a typed pairing code as PAIR-XXXX-XXXX. It ignores case, reads O
// as 0 and I and L as 1, and accepts missing or additional blanks and dashes and a
// missing prefix.
func NormalizeCode(s string) (string, bool) { return normalizeCode(prefixPair, s) }

func normalizeCode(prefix, s string) (string, bool) {
	if len(s) > 64 {
		return "", false
	}
	typed, digits := codeDigitsOf(prefix), codeDigitsOf(s)
	if len(digits) == len(typed)+codeDigits {
		digits = strings.TrimPrefix(digits, typed)
	}
	if len(digits) != codeDigits || strings.Trim(digits, codeAlphabet) != "" {
		return "", false
	}
	return formatCode(prefix, digits), true
}

// codeDigitsOf returns the digits of a typed code, or of its prefix.
func codeDigitsOf(s string) string {
	return strings.Map(func(c rune) rune {
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		switch c {
		case '-', ' ', '\t', '\r', '\n':
			return -1
		case 'O':
			return '0'
		case 'I', 'L':
			return '1'
		}
		return c
	}, s)
}

// hashCode returns the hash of a typed code. The zero hash of an invalid code matches no record.
func hashCode(prefix, s string) digest {
	code, ok := normalizeCode(prefix, s)
	if !ok {
		return digest{}
	}
	return sha256.Sum256([]byte(code))
}
