package pairing

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/subscribe"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
)

// Options configure a service.
type Options struct {
	// Store holds the pairings. Required. It must be closed after the service.
	Store *store.Store
	// Token creates the tunnel token of a connector. Required. It is called for
	// each approval, also from the store's subscription: it must return soon and
	// must not write to the store.
	Token func(connectorID, secret string) (string, error)
	// Pin returns the pin of the gateway's identity, for the fingerprints of
	// devices. Required.
	Pin func() string
	// Limited, if not nil, is called when codes begin to be rejected because of
	// too many wrong codes from all networks together. It must return soon.
	Limited func()
	// Edges divides the limits on wrong codes among the edges of a cluster.
	Edges fair.Edges
	// Logger; nil discards.
	Logger *slog.Logger
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Service accepts pairing codes from devices and sends them the decisions. Its methods
// are safe for concurrent use.
type Service struct {
	options Options
	unwatch func()
	guesses *guesses
	trying  sync.Mutex // held by Try: codes that are checked at the same time are not wrong ones

	mu      sync.Mutex
	tickets map[string]*ticket // by pairing id: the connected devices
	closed  bool

	subscribers subscribe.List[string] // accounts
}

var _ tunnel.Pairing = (*Service)(nil)

// New returns a service, which must be closed.
func New(o Options) *Service {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Service{options: o, guesses: newGuesses(o.Edges), tickets: make(map[string]*ticket)}
	s.unwatch = s.options.Store.Subscribe(s.onChange)
	return s
}

// Close disconnects the waiting devices. They reconnect to the next service.
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

// Subscribe calls f when a device of an account connects or disconnects. f must
// return soon. stop ends the subscription; a call that has already begun may still
// be running.
func (s *Service) Subscribe(f func(account string)) (stop func()) { return s.subscribers.Add(f) }

// notify calls the subscribers after a change of an account's devices.
func (s *Service) notify(account string) { s.subscribers.Now().Call(account) }

// Connected reports whether the device of an open pairing is connected and waiting. A device that has come to another
// edge counts as connected.
func (s *Service) Connected(p store.Pairing) bool {
	if p.Device != nil && p.Device.Edge != "" && p.Device.Edge != s.options.Store.Edge() {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tickets[p.ID] != nil
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
	t := &ticket{
		id: p.ID, account: p.Account, secret: device.Secret, ends: p.ExpiresAt,
		decided: make(chan tunnel.Decision, 1),
	}
	if !s.admit(t) {
		return tunnel.Ticket{}, denyShutdown
	}
	s.settle(t) // a decision made before admit reached no ticket
	return tunnel.Ticket{
		ID: p.ID, Fingerprint: fingerprint, ExpiresAt: p.ExpiresAt, Decided: t.decided, Release: func() { s.remove(t) },
	}, nil
}

// Expects implements [tunnel.Pairing].
func (s *Service) Expects(remote string, match func(codeHash []byte) bool) (pairing string, ok bool) {
	s.Try(remote, func() (wrong bool) {
		pairing, ok = s.options.Store.MatchPairing(match)
		return !ok
	})
	return pairing, ok
}

// Try calls check, which reports whether a code from an address is wrong, within the limits on wrong codes. If these
// do not allow it, Try returns when to try again. check must not wait.
func (s *Service) Try(remote string, check func() (wrong bool)) (wait time.Duration) {
	s.trying.Lock()
	defer s.trying.Unlock()
	a := s.guesses.begin(remote, s.options.Now(), true)
	if a.limitBegins {
		s.beginLimit()
	}
	if a.wait == 0 && !check() {
		s.guesses.forgive(a)
	}
	return a.wait
}

// claim binds the code to the device in the store, within the limits on wrong codes.
func (s *Service) claim(ctx context.Context, device tunnel.Device, fingerprint string) (store.Pairing, *link.Deny) {
	known, returning := s.recognize(device.Code, fingerprint)
	var a admission
	if !returning {
		if a = s.guesses.begin(device.Remote, s.options.Now(), !known); a.limitBegins {
			s.beginLimit()
		}
		if a.wait > 0 {
			return store.Pairing{}, denyLimit(a.wait)
		}
	}
	p, err := s.options.Store.ClaimPairing(ctx, device.Code, device.Secret, store.Device{
		Hostname: device.Hostname, OS: device.OS, Version: device.Version,
		Address: device.Remote, Fingerprint: fingerprint, Upstreams: device.Upstreams,
	})
	deny := s.refusal(err)
	if deny == nil || deny.Code != link.DenyPairingUnknown {
		s.guesses.forgive(a)
	}
	return p, deny
}

// beginLimit reports that the limit of all networks begins to reject codes.
func (s *Service) beginLimit() {
	s.options.Logger.Warn("too many wrong codes from many networks: some pairing and set-up codes are rejected without " +
		"a check, and their senders asked to retry")
	if s.options.Limited != nil {
		s.options.Limited()
	}
	for _, a := range s.options.Store.Accounts() {
		s.notify(a.ID)
	}
}

// Limited reports whether codes were rejected within the last minute because of too
// many wrong codes from all networks together.
func (s *Service) Limited() bool { return s.guesses.isLimited(s.options.Now()) }

// recognize reports, from the store's memory, whether the code is known and whether
// the device has already claimed it. An attacker cannot know the device's
// fingerprint, and the store would reject the attacker's secret anyway.
func (s *Service) recognize(code, fingerprint string) (known, returning bool) {
	p, known := s.options.Store.FindPairing(code)
	return known, p.Device != nil && p.Device.Fingerprint == fingerprint
}
