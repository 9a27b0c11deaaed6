package tunnel

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"golang.org/x/time/rate"

	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/link/bodies"
	"github.com/postern-dev/postern/connector/logs"
)

var (
	// ErrNoRoute: the connector is online, but neither the deployment nor the
	// connector names the upstream of a model. The message includes the remedy.
	ErrNoRoute = errors.New("no upstream for the model")
	// ErrUnavailable is returned by Options.Authenticate, possibly wrapped, when it
	// cannot check a connector now. The connector will try again soon.
	ErrUnavailable = errors.New("connectors cannot be authenticated now")
	// ErrRotated is returned by Options.Authenticate and Options.Valid, possibly wrapped, for a secret that
	// has ended after a rotation.
	ErrRotated = errors.New("the secret of the connector was rotated")
	// ErrClosed: the hub is closed.
	ErrClosed = errors.New("the tunnel hub is closed")

	// errEnded: the session ended or began to drain before it took the request.
	errEnded = fmt.Errorf("the session has ended: %w", link.ErrNotSent)
)

// Connector identifies the connector of a session.
type Connector struct {
	ID, Name, Account string
	// Pairing distinguishes credentials of the same connector: it is the id of the
	// pairing that created them, "" if they were created with a token.
	Pairing string
	// Secret is the SHA-256 of the secret in the hello.
	Secret [sha256.Size]byte
}

// Authenticate checks the credentials in a hello. Any error that does not wrap
// [ErrUnavailable] denies the connector permanently.
type Authenticate func(ctx context.Context, id, secret string) (Connector, error)

// Options are the settings of a hub that depend on the configuration.
type Options struct {
	// Authenticate checks the credentials of connectors. While it is nil, they are asked to
	// try again soon.
	Authenticate Authenticate
	// Preauthenticate reports whether match accepts the SHA-256 of a secret that the
	// connector with this id uses. It must return soon. nil: connectors are strangers until their hello.
	Preauthenticate func(id string, match func(secretHash []byte) bool) bool
	// Valid returns until when a connector returned by Authenticate may keep its tunnel; the zero time:
	// without an end. It fails with ErrRotated if the secret has ended, and with another error if the
	// connector was removed, or paired again. nil: all are valid.
	Valid func(Connector) (until time.Time, err error)
	// Pairing accepts devices with a pairing code; nil: they are denied.
	Pairing Pairing
	// Members returns the gateways of the cluster; nil: there is no cluster. It must not wait.
	// [Hub.MembersChanged] sends changes.
	Members func() Members
	// Bodies bounds the bodies of requests that are kept; nil: none are.
	Bodies *bodies.Cache
	// Logger; nil discards.
	Logger *slog.Logger
	// Version of the gateway, sent to connectors.
	Version string
}

// Hub accepts tunnels and is the registry of the live ones. Its methods are safe for
// concurrent use.
type Hub struct {
	options  atomic.Pointer[Options]
	counters counters

	events events

	arrivalRate *rate.Limiter // of connections that need not prove their address
	pending     *pending
	handshakes  *fair.Semaphore
	encodeFrom  time.Duration              // the constant, except in tests
	denials     logs.Sampler[netip.Prefix] // logs denied hellos
	devices     logs.Sampler[netip.Prefix] // logs waiting devices

	identity atomic.Pointer[identity] // nil before Listen

	started time.Time
	closing context.Context // canceled when Close begins
	stop    context.CancelFunc

	changing sync.Mutex // held by MembersChanged; acquired before mu
	mu       sync.RWMutex
	live     map[string]*Session         // by connector id: sessions that take requests
	all      map[string][]*Session       // by connector id: live and draining
	waiting  map[*waitingDevice]struct{} // devices without a decision
	lost     map[string]time.Time        // by connector id: when it went offline, see addOffline
	members  Members                     // as last sent to connectors

	// Set by Listen.
	conn      net.PacketConn
	transport *quic.Transport
	listener  *quic.Listener
	tls       *tls.Config
	running   sync.WaitGroup // the accept loop and all connections

	sockets      sync.WaitGroup  // all open WebSockets
	socketsCtx   context.Context // of the WebSockets
	abortSockets context.CancelFunc
}

// NewHub returns a hub without a listener.
func NewHub(o Options) *Hub {
	h := &Hub{
		arrivalRate: rate.NewLimiter(handshakesPerSecond, handshakesPerSecond),
		pending:     newPending(),
		handshakes:  fair.NewSemaphore(handshakeLimits),
		encodeFrom:  encodeFrom,

		live:    make(map[string]*Session),
		all:     make(map[string][]*Session),
		waiting: make(map[*waitingDevice]struct{}),
		lost:    make(map[string]time.Time),
		started: time.Now(),
	}
	h.closing, h.stop = context.WithCancel(context.Background())
	h.socketsCtx, h.abortSockets = context.WithCancel(context.Background())
	h.SetOptions(o)
	return h
}

// SetOptions replaces the options; sessions stay as they are.
func (h *Hub) SetOptions(o Options) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	h.options.Store(&o)
}

// Session returns the session of a connector that takes requests.
func (h *Hub) Session(connectorID string) (*Session, bool) {
	h.mu.RLock()
	s, ok := h.live[connectorID]
	h.mu.RUnlock()
	return s, ok && s.usable()
}

// register adds s as the current session of its connector and returns the session that
// it replaces, if any. ok is false if the hub is closed.
func (h *Hub) register(s *Session) (old *Session, ok bool) {
	defer h.events.deliver()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closing.Err() != nil {
		return nil, false
	}
	old = h.live[s.connector.ID]
	h.live[s.connector.ID] = s
	h.all[s.connector.ID] = append(h.all[s.connector.ID], s)
	h.events.add(eventOf(s, true))
	return old, true
}

// unregister removes s from the sessions that take requests.
func (h *Hub) unregister(s *Session) {
	defer h.events.deliver()
	h.mu.Lock()
	defer h.mu.Unlock()
	if id := s.connector.ID; h.live[id] == s {
		delete(h.live, id)
		if !s.silent.Load() {
			h.addOffline(s)
		}
	}
}

// maxLost bounds the times at which connectors went offline. At the bound, all are forgotten.
const maxLost = 1 << 16

// addOffline queues the event that a session's connector is offline. The caller holds the lock.
func (h *Hub) addOffline(s *Session) {
	if len(h.lost) >= maxLost {
		clear(h.lost)
	}
	h.lost[s.connector.ID] = time.Now()
	h.events.add(eventOf(s, false))
}

// LastOnline returns when one of the connectors was last online, or when the hub started if that is unknown.
func (h *Hub) LastOnline(connectorIDs []string) time.Time {
	h.mu.RLock()
	defer h.mu.RUnlock()
	last := h.started
	for _, id := range connectorIDs {
		if s := h.live[id]; s != nil && !s.silent.Load() { // its tunnel is ending, or was tried
			return time.Now()
		}
		if lost := h.lost[id]; lost.After(last) {
			last = lost
		}
	}
	return last
}

// setSilent records whether a session's connector is silent. A silent one gets no requests.
func (h *Hub) setSilent(s *Session, silent bool) {
	if s.silent.Load() == silent {
		return
	}
	defer h.events.deliver()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.live[s.connector.ID] != s {
		return
	}
	if s.silent.Store(silent); silent {
		h.addOffline(s)
	} else {
		h.events.add(eventOf(s, true))
	}
}

// remove drops a session whose connection has ended.
func (h *Hub) remove(s *Session) {
	h.unregister(s)
	h.mu.Lock()
	defer h.mu.Unlock()
	id := s.connector.ID
	h.all[id] = slices.DeleteFunc(h.all[id], func(other *Session) bool { return other == s })
	if len(h.all[id]) == 0 {
		delete(h.all, id)
	}
	s.bodies.Close()
}

// Sessions describes the sessions that take requests, in the order of their connectors' ids.
func (h *Hub) Sessions() []Info {
	h.mu.RLock()
	sessions := slices.Collect(maps.Values(h.live))
	h.mu.RUnlock()
	sessions = slices.DeleteFunc(sessions, func(s *Session) bool { return s.silent.Load() })
	inOrder(sessions)
	infos := make([]Info, len(sessions))
	for i, s := range sessions {
		infos[i] = s.Info()
	}
	return infos
}

// Disconnect closes all tunnels of a connector, including draining ones. Its
// requests fail at once.
func (h *Hub) Disconnect(connectorID string, code link.CloseCode) {
	for _, s := range h.sessionsOf(connectorID) {
		s.close(code)
	}
}

// Review closes the tunnels of a connector that Options.Valid refuses, now or when their secret ends.
func (h *Hub) Review(connectorID string) {
	for _, s := range h.sessionsOf(connectorID) {
		s.review()
	}
}

// sessionsOf returns the sessions of a connector here, including draining ones.
func (h *Hub) sessionsOf(connectorID string) []*Session {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return slices.Clone(h.all[connectorID])
}

// heartbeat returns the ping interval for connectors. It is short, so that they soon
// notice the loss of the gateway, but grows to keep all connectors together near 100 pings
// per second. The maximum is below the keep-alive interval of QUIC (5 s): pings then replace the
// keep-alive packets of an idle tunnel, and a connector counts as silent before QUIC gives it up.
func (h *Hub) heartbeat() time.Duration {
	n := h.count()
	const pingsPerSecond, minimum, maximum = 100, 1500 * time.Millisecond, 4500 * time.Millisecond
	return min(max(time.Duration(n)*time.Second/pingsPerSecond, minimum), maximum)
}

// count returns the number of sessions of this gateway that take requests.
func (h *Hub) count() int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.live)
}

// Counters are totals since the hub was created.
type Counters struct {
	Connected uint64 `json:"connected"` // sessions established
	Replaced  uint64 `json:"replaced"`  // sessions closed for a newer hello
	Denied    uint64 `json:"denied"`    // hellos denied
	Rejected  uint64 `json:"rejected"`  // connections over the limit, or without a hello
	Requests  uint64 `json:"requests"`  // requests sent through a session
	Failed    uint64 `json:"failed"`    // requests that failed before the response header
}

// counters are the current values of Counters.
type counters struct {
	connected, replaced, denied, rejected, requests, failed atomic.Uint64
}

// Counters returns the totals.
func (h *Hub) Counters() Counters {
	c := &h.counters
	return Counters{
		Connected: c.connected.Load(),
		Replaced:  c.replaced.Load(),
		Denied:    c.denied.Load(),
		Rejected:  c.rejected.Load(),
		Requests:  c.requests.Load(),
		Failed:    c.failed.Load(),
	}
}
