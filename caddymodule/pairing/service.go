package pairing

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/subscribe"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
)

// Options are what a service works with.
type Options struct {
	// Store has the pairings; it is needed, and must be closed after the service.
	Store *store.Store
	// Token makes the tunnel token of a connector; it is needed. It is called
	// with each approval, also by the store's subscription: it must return soon
	// and must not write to the store.
	Token func(connectorID, secret string) (string, error)
	// Pin returns the pin of the gateway's identity, for the fingerprints of
	// devices; it is needed.
	Pin func() string
	// Limited, if it is not nil, is called when codes begin to be refused because
	// too many wrong ones come from all networks together. It must return soon.
	Limited func()
	// Logger; nil discards.
	Logger *slog.Logger
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Service takes claim codes from devices and sends them what was decided. Its
// methods are safe for concurrent use.
type Service struct {
	options Options
	unwatch func()
	guesses *guesses

	mu      sync.Mutex
	tickets map[string]*ticket // by pairing id: the connected devices
	codes   map[string]code    // by pairing id: what Start has made
	closed  bool

	subscribers subscribe.List[string] // accounts
}

// code is a claim code that can be shown again.
type code struct{ account, text string }

var _ tunnel.Pairing = (*Service)(nil)

// New returns a service that works until it is closed.
func New(o Options) *Service {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Service{options: o, guesses: newGuesses(), tickets: make(map[string]*ticket), codes: make(map[string]code)}
	s.unwatch = s.options.Store.Subscribe(s.onChange)
	return s
}

// Close sends the waiting devices away; they come back to the next one.
func (s *Service) Close() {
	s.unwatch()
	s.mu.Lock()
	s.closed = true
	left := s.tickets
	s.tickets = make(map[string]*ticket)
	s.mu.Unlock()
	for _, t := range left {
		t.dismiss()
	}
}

// Start creates a pairing and returns it with its claim code, which this process
// keeps in memory as long as the pairing is open.
func (s *Service) Start(ctx context.Context, account, by string) (store.Pairing, string, error) {
	p, text, err := s.options.Store.CreatePairing(ctx, account, by)
	if err != nil {
		return store.Pairing{}, "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, c := range s.codes {
		if !s.open(c.account, id) {
			delete(s.codes, id)
		}
	}
	s.codes[p.ID] = code{account, text}
	return p, text, nil
}

// Code returns the claim code of a pairing that is open and was started here.
func (s *Service) Code(pairingID string) (string, bool) {
	s.mu.Lock()
	c, ok := s.codes[pairingID]
	s.mu.Unlock()
	if !ok || !s.open(c.account, pairingID) {
		return "", false
	}
	return c.text, true
}

// open reports whether nothing has been decided about a pairing.
func (s *Service) open(account, id string) bool {
	p, ok := s.options.Store.Pairing(account, id)
	return ok && (p.State == store.PairingWaiting || p.State == store.PairingPending)
}

// Subscribe has f called when a device of an account comes to the service or
// leaves it. f must return soon. stop ends it, but for a call that is running.
func (s *Service) Subscribe(f func(account string)) (stop func()) { return s.subscribers.Add(f) }

// notify calls the subscribers for a change of an account's devices.
func (s *Service) notify(account string) { s.subscribers.Now().Call(account) }

// Connected reports whether the device of a pairing waits here for its decision.
func (s *Service) Connected(pairingID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.tickets[pairingID]
	return ok
}

// Claim implements [tunnel.Pairing].
func (s *Service) Claim(ctx context.Context, device tunnel.Device) (tunnel.Ticket, *link.Deny) {
	fingerprint := link.Fingerprint(s.options.Pin(), device.Secret)
	p, deny := s.claim(ctx, device, fingerprint)
	if deny == nil && p.State == store.PairingExpired {
		deny = denyExpired
	}
	if deny != nil {
		return tunnel.Ticket{}, deny
	}
	t := &ticket{id: p.ID, account: p.Account, secret: device.Secret, ends: p.ExpiresAt, decided: make(chan tunnel.Decision, 1)}
	if !s.admit(t) {
		return tunnel.Ticket{}, denyShutdown
	}
	s.settle(t) // what was decided before it was admitted was sent to no ticket
	return tunnel.Ticket{
		ID: p.ID, Fingerprint: fingerprint, ExpiresAt: p.ExpiresAt, Decided: t.decided, Release: func() { s.remove(t) },
	}, nil
}

// claim has the store bind the code to the device, within the bounds of
// guessing.
func (s *Service) claim(ctx context.Context, device tunnel.Device, fingerprint string) (store.Pairing, *link.Deny) {
	known, returning := s.recognize(device.Code, fingerprint)
	var v verdict
	if !returning {
		if v = s.guesses.begin(device.Remote, s.options.Now(), !known); v.begun {
			s.beginLimit()
		}
		if v.wait > 0 {
			return store.Pairing{}, denyLimit(v.wait)
		}
	}
	p, err := s.options.Store.ClaimPairing(ctx, device.Code, device.Secret, store.Device{
		Hostname: device.Hostname, OS: device.OS, Version: device.Version,
		Address: device.Remote, Fingerprint: fingerprint, Upstreams: device.Upstreams,
	})
	deny := s.refusal(err)
	if deny == nil || deny.Code != link.DenyPairingUnknown {
		s.guesses.takeBack(v)
	}
	return p, deny
}

// beginLimit reports that codes begin to be refused because of the guesses of all
// networks.
func (s *Service) beginLimit() {
	s.options.Logger.Warn("too many wrong claim codes come from many networks: some are refused unchecked, and their devices asked to come back")
	if s.options.Limited != nil {
		s.options.Limited()
	}
	for _, a := range s.options.Store.Accounts() {
		s.notify(a.ID)
	}
}

// Limited reports whether codes were refused in the last minute because too many
// wrong ones came from all networks together.
func (s *Service) Limited() bool { return s.guesses.isLimited(s.options.Now()) }

// recognize looks at what the store has in memory: whether the code is known,
// and whether the device is the one that has it. A stranger cannot have its
// fingerprint, and would not get past the store with it.
func (s *Service) recognize(code, fingerprint string) (known, returning bool) {
	p, known := s.options.Store.FindPairing(code)
	return known, p.Device != nil && p.Device.Fingerprint == fingerprint
}
