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

// Limits on connections without a valid hello, across all addresses.
const (
	// maxPending bounds these connections. A QUIC connection takes some 100 KB, and
	// at most 350 KB.
	maxPending = 2048
	// maxStrangers bounds the connections without a valid preauthentication. The
	// rest of maxPending is for connections before their ClientHello.
	maxStrangers = maxPending * 3 / 4
	// maxKnown bounds the connections of known connectors, in addition to
	// maxPending.
	maxKnown = 512
	// knownPerConnector bounds the connections of one known connector. It dials
	// over two transports and to several addresses; its preauthentication may also
	// have been intercepted.
	knownPerConnector = 4
	// helloBytes bounds the total size of hellos, not counting the first few KiB of
	// each, which suffice for nearly all. Decoding takes three times as much memory.
	helloBytes = 32 << 20
)

const (
	// defaultPending is how many connections without a valid hello one address may
	// have. It suffices for a network of connectors that reconnect at once, and takes
	// about 50 MB for handshakes.
	defaultPending = 512
	// handshakesPerSecond is the rate of new connections above which clients must
	// prove their address.
	handshakesPerSecond = 200
)

// handshakeLimits bounds the connections between their first packet and their hello.
// If thousands reconnected at once and shared the processors, none would finish
// before its connector gave up.
var handshakeLimits = fair.Limits{
	Permits: 64, Reserved: 16,
	Waiting: maxPending, // with some 30 KB each
	// Connectors wait longer once the gateway has sent a packet.
	Wait: 8 * time.Second,
	// A handshake that the client does not finish must not block the others.
	Hold: 5 * time.Second,
}

var (
	// errPending rejects a connection; the client sees CONNECTION_REFUSED.
	errPending = errors.New("too many connections without a hello, from this network or in total")
	// errHelloBudget rejects a large hello.
	errHelloBudget = errors.New("too many large hellos at a time")
)

// pending counts connections without a valid hello by their networks. Known
// connectors, which have sent a valid preauthentication, are counted separately: they
// get places even if strangers hold all others. Over QUIC, the preauthentication is
// part of the ClientHello. Places before the ClientHello are shared, and strangers can
// hold all of these only by withholding theirs. WebSockets send it with the request. There, a device
// may send that of an open pairing code, which is checked only while places are scarce.
type pending struct {
	mu         sync.Mutex
	places     fair.Budget    // all connections of unknown clients
	strangers  int            // of these, connections without a valid preauthentication
	hellos     fair.Budget    // bytes of large hellos
	known      int            // sum of connectors
	connectors map[string]int // connections of known connectors, by id
}

func newPending() *pending {
	return &pending{
		places: fair.Budget{Most: maxPending}, hellos: fair.Budget{Most: helloBytes}, connectors: make(map[string]int),
	}
}

// place is held by one such connection until its hello is accepted or the connection
// ends.
type place struct {
	pending *pending
	from    fair.Networks
	peer    bool // the connection has the windows of a peer

	// Under the lock of pending:
	freed     bool
	stranger  bool
	connector string       // id of a known connector
	permit    *fair.Permit // held during the handshake
	hello     int          // bytes of the hello taken from the budget
}

// placeKey is the context key of a connection's place.
type placeKey struct{}

// verify is the transport's VerifySourceAddress. It reports whether a client must
// prove its address first, which takes a round trip. This includes all clients that
// may have to wait for a permit: the retry packet shows them that the gateway is up.
func (h *Hub) verify(addr net.Addr) bool {
	return !h.arrivalRate.Allow() || h.pending.crowded(networksOf(addr), h.options.Load().PendingPerAddress)
}

// admit is the transport's ConnContext, called for each new connection before it
// takes any resources.
func (h *Hub) admit(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
	if h.handshakes.Closed() {
		h.counters.rejected.Add(1)
		return nil, ErrClosed
	}
	p := h.pending.take(networksOf(info.RemoteAddr), h.options.Load().PendingPerAddress, "")
	if p == nil {
		h.counters.rejected.Add(1)
		return nil, errPending
	}
	p.peer = h.peerAddresses.has(info.RemoteAddr) // as when the connection got its windows
	return p.hold(ctx), nil
}

// hold returns the context of the connection and frees the place when it ends.
func (l *place) hold(ctx context.Context) context.Context {
	context.AfterFunc(ctx, l.free)
	return context.WithValue(ctx, placeKey{}, l)
}

// placeOf returns the place of a connection with this context.
func placeOf(conn context.Context) *place { return conn.Value(placeKey{}).(*place) }

// pace delays the handshake of a QUIC connection until it gets a permit. It is called
// as GetConfigForClient, before TLS does any expensive work.
func (h *Hub) pace(info *tls.ClientHelloInfo) (*tls.Config, error) {
	connector := ""
	for _, protocol := range info.SupportedProtos {
		if text, ok := strings.CutPrefix(protocol, link.PreauthProtocol); ok {
			connector = h.preauthenticate(text)
			break // check only the first one: a client could send hundreds
		}
	}
	p := placeOf(info.Context())
	if !p.identify(connector) {
		h.counters.rejected.Add(1)
		return nil, errPending
	}
	return nil, p.enter(info.Context(), h.handshakes)
}

// preauthenticate returns the connector id of a preauthentication, "" if it is
// invalid.
func (h *Hub) preauthenticate(text string) string {
	match := h.options.Load().Preauthenticate
	id, mac, ok := link.ParsePreauth(text)
	if !ok || match == nil {
		return ""
	}
	if p := h.proof.Load(); p == nil ||
		!match(id, func(secretHash []byte) bool { return p.matches(id, secretHash, mac) }) {
		return ""
	}
	return id
}

// matches reports whether a preauthentication is that of a secret.
func (p *proof) matches(id string, secretHash, mac []byte) bool {
	return link.CheckPreauth(p.pin, id, secretHash, mac) ||
		p.FormerPin != "" && link.CheckPreauth(p.FormerPin, id, secretHash, mac)
}

// expects returns the id of the pairing whose code a device has shown in its preauthentication, ""
// if it has not. The device then counts as a known connector.
func (h *Hub) expects(remote net.Addr, text string) string {
	pairing, proof := h.options.Load().Pairing, h.proof.Load()
	id, mac, ok := link.ParsePreauth(text)
	if !ok || id != link.PreauthPairing || pairing == nil || proof == nil {
		return ""
	}
	expected, ok := pairing.Expects(hostOf(remote), func(codeHash []byte) bool { return proof.matches(id, codeHash, mac) })
	if !ok {
		return ""
	}
	return expected
}

// take returns a place for a client, or nil if its address already has most places or
// one of its networks has used its share. A known connector, "" for others, has places
// of its own.
func (p *pending) take(from fair.Networks, most int, connector string) *place {
	l := &place{pending: p, from: from}
	p.mu.Lock()
	defer p.mu.Unlock()
	if connector != "" && p.addKnown(l, connector) {
		return l
	}
	if p.places.Of(from.Narrowest()) >= most || !p.places.Take(from, 1) {
		return nil
	}
	return l
}

// addKnown assigns a place to a known connector, if there is room. The caller holds
// the lock.
func (p *pending) addKnown(l *place, connector string) bool {
	if p.known >= maxKnown || p.connectors[connector] >= knownPerConnector {
		return false
	}
	p.known++
	p.connectors[connector]++
	l.connector = connector
	return true
}

// identify records the connector of a connection, "" for a stranger, and reports
// whether the connection may continue. Known connectors beyond their limit count as
// strangers.
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

// crowded reports whether an address, or all together, have so many places that new
// clients must prove their address. Packets with forged addresses can fill only this
// part of the places.
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
	defer l.pending.mu.Unlock()
	if l.permit = permit; l.freed {
		permit.Release()
	}
	return nil
}

// release lets the next connection begin its handshake, since this one has no
// expensive work left.
func (l *place) release() {
	l.pending.mu.Lock()
	defer l.pending.mu.Unlock()
	if l.permit != nil {
		l.permit.Release()
		l.permit = nil
	}
}

// grow takes bytes of the budget for the connection's hello.
func (l *place) grow(bytes int) error {
	l.pending.mu.Lock()
	defer l.pending.mu.Unlock()
	if l.freed || !l.pending.hellos.Take(l.from, bytes) {
		return errHelloBudget
	}
	l.hello += bytes
	return nil
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
	if l.hello > 0 {
		p.hellos.Give(l.from, l.hello)
	}
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

// networksOf returns the networks of a peer.
func networksOf(addr net.Addr) fair.Networks { return fair.Parse(hostOf(addr)) }
