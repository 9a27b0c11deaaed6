package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/connector/link"
)

const (
	// defaultPending is how many connections without a valid hello one address may
	// have: room for a network of connectors that comes back at once, and about
	// 50 MB of handshakes.
	defaultPending = 512
	// handshakesPerSecond is how many may come before each has to prove its address.
	handshakesPerSecond = 200
)

// handshakeLimits are those of connections between their first packet and their
// hello. When thousands come back at once, and all of them shared the processors,
// none would be done before its connector gave it up.
var handshakeLimits = fair.Limits{
	Permits: 64, Reserved: 16,
	Waiting: maxPending, // with some 30 KB each
	// Connectors wait longer for a gateway that has sent anything at all.
	Wait: 8 * time.Second,
	// One that its other side does not finish must not keep the others out.
	Hold: 5 * time.Second,
}

// errPending refuses a connection; the dialler sees CONNECTION_REFUSED.
var errPending = errors.New("too many connections of this network, or in all, wait for their hello")

// pending counts connections without a valid hello by their networks. Those that
// have shown to be a connector's, with a preauthentication, are counted apart: they
// have places even when strangers hold all others. Over QUIC a connection has to get
// as far as its ClientHello to show that, so that strangers cannot have all places
// for longer than that, unless they keep theirs back. A WebSocket shows it first.
type pending struct {
	mu         sync.Mutex
	places     fair.Budget    // of all that are not known
	strangers  int            // of these: they can show nothing
	hellos     fair.Budget    // bytes of large hellos
	known      int            // sum of connectors
	connectors map[string]int // connections of known connectors, by id
}

func newPending() *pending {
	return &pending{
		places: fair.Budget{Most: maxPending}, hellos: fair.Budget{Most: helloBytes}, connectors: make(map[string]int),
	}
}

// place is that of one such connection. It is given back when the hello is accepted
// or the connection ends, whichever is first.
type place struct {
	pending *pending
	from    fair.Networks
	unwatch func() bool

	// Under the lock of pending:
	freed     bool
	stranger  bool
	connector string       // id, of a known one
	permit    *fair.Permit // since it has begun its handshake
	hello     int          // bytes of its hello that count
}

// placeKey is the context key of a connection's place.
type placeKey struct{}

// verify is the transport's VerifySourceAddress: it reports whether a connection
// has to prove its address first, which costs a round trip. All have to that may
// wait for a permit: it is how a connector learns that the gateway is there.
func (h *Hub) verify(addr net.Addr) bool {
	return !h.arrivalRate.Allow() || h.pending.crowded(networksOf(addr), h.options.Load().PendingPerAddress)
}

// admit is the transport's ConnContext: called for each new connection before
// anything is spent on it.
func (h *Hub) admit(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
	if h.handshakes.Closed() {
		h.counters.rejected.Add(1)
		return nil, ErrClosed
	}
	p := h.pending.take(networksOf(info.RemoteAddr), h.options.Load().PendingPerAddress)
	if p == nil {
		h.counters.rejected.Add(1)
		return nil, errPending
	}
	return p.hold(ctx), nil
}

// hold returns the context of the place's connection, with which it ends.
func (l *place) hold(ctx context.Context) context.Context {
	l.unwatch = context.AfterFunc(ctx, l.free)
	return context.WithValue(ctx, placeKey{}, l)
}

// pace lets a QUIC connection begin its handshake when it is its turn. TLS asks
// for another configuration before it has spent anything.
func (h *Hub) pace(info *tls.ClientHelloInfo) (*tls.Config, error) {
	p, ok := info.Context().Value(placeKey{}).(*place)
	if !ok {
		return nil, errPending // admit has seen every connection
	}
	connector := ""
	for _, protocol := range info.SupportedProtos {
		if text, ok := strings.CutPrefix(protocol, link.PreauthProtocol); ok {
			connector = h.preauthenticate(text)
			break // there is one: a stranger must not have hundreds checked
		}
	}
	if !p.identify(connector) {
		h.counters.rejected.Add(1)
		return nil, errPending
	}
	return nil, p.enter(info.Context(), h.handshakes)
}

// preauthenticate returns the id of the connector that a preauthentication is of,
// "" if it is not valid.
func (h *Hub) preauthenticate(text string) string {
	match := h.options.Load().Preauthenticate
	id, mac, ok := link.ParsePreauth(text)
	if !ok || match == nil {
		return ""
	}
	pin := h.Pin()
	if !match(id, func(secretHash []byte) bool { return link.CheckPreauth(pin, id, secretHash, mac) }) {
		return ""
	}
	return id
}

// take returns a place for a client, or nil if its address has most of them
// already, or one of its networks its share.
func (p *pending) take(from fair.Networks, most int) *place {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.places.Of(from.Narrowest()) >= most || !p.places.Take(from, 1) {
		return nil
	}
	return &place{pending: p, from: from}
}

// takeKnown returns a place for a connection of a known connector, or nil.
func (p *pending) takeKnown(from fair.Networks, connector string) *place {
	l := &place{pending: p, from: from}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.addKnown(l, connector) {
		return nil
	}
	return l
}

// addKnown makes a place one of a known connector, if there is room. The caller
// holds the lock.
func (p *pending) addKnown(l *place, connector string) bool {
	if p.known >= maxKnown || p.connectors[connector] >= knownPerConnector {
		return false
	}
	p.known++
	p.connectors[connector]++
	l.connector = connector
	return true
}

// identify notes whose connection it is; "" is a stranger's. It reports whether the
// connection may go on. Known connectors beyond their places are like strangers.
func (l *place) identify(connector string) bool {
	p := l.pending
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case l.freed:
		return false
	case connector != "" && p.addKnown(l, connector):
		p.places.Give(l.from, 1)
		return true
	case p.strangers >= maxStrangers:
		return false
	}
	l.stranger = true
	p.strangers++
	return true
}

// crowded reports whether a client's address has so many places that more have to prove
// their address, or all together have. Initial packets with a forged one can fill
// this part of the places; the rest is left for those who really are there.
func (p *pending) crowded(from fair.Networks, most int) bool {
	const part = 8
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.places.Of(from.Narrowest()) >= most/part || p.places.Used() >= handshakeLimits.Permits/2
}

// enter waits until the connection may begin its handshake.
func (l *place) enter(ctx context.Context, handshakes *fair.Semaphore) error {
	permit, err := handshakes.Acquire(ctx, l.from, l.connector != "")
	if err != nil {
		return err
	}
	l.pending.mu.Lock()
	l.permit = permit
	freed := l.freed
	l.pending.mu.Unlock()
	if freed {
		l.release()
	}
	return nil
}

// release lets the next connection begin its handshake.
func (l *place) release() {
	l.pending.mu.Lock()
	permit := l.permit
	l.permit = nil
	l.pending.mu.Unlock()
	if permit != nil {
		permit.Release()
	}
}

// free gives the place back, once.
func (l *place) free() {
	defer l.release()
	p := l.pending
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.freed {
		return
	}
	l.freed = true
	l.shrink()
	if l.connector == "" {
		p.places.Give(l.from, 1)
		if l.stranger {
			p.strangers--
		}
		return
	}
	p.known--
	if p.connectors[l.connector]--; p.connectors[l.connector] == 0 {
		delete(p.connectors, l.connector)
	}
}

// accepted frees the place of a connection whose hello is valid; conn is its
// context.
func accepted(conn context.Context) {
	if l, ok := conn.Value(placeKey{}).(*place); ok {
		l.unwatch()
		l.free()
	}
}

// makeRoom lets the next connection begin its handshake; this one has nothing left
// to do that takes long. conn is its context.
func makeRoom(conn context.Context) {
	if l, ok := conn.Value(placeKey{}).(*place); ok {
		l.release()
	}
}

// networksOf returns the networks of a peer.
func networksOf(addr net.Addr) fair.Networks { return fair.Parse(hostOf(addr)) }
