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
	// pendingPerAddress bounds the connections of one address without a valid hello. IPv6 addresses count by their
	// /64. It suffices for a network of connectors that reconnect at once, and takes about 50 MB for handshakes.
	pendingPerAddress = 512
	// handshakesPerSecond is the rate of new connections above which clients must
	// prove their address.
	handshakesPerSecond = 200
)

// handshakeLimits bounds the connections between their first packet and their hello.
// If thousands reconnected at once and shared the processors, none would finish
// before its connector gave up.
var handshakeLimits = fair.Limits{
	Slots: 64, Spare: 16,
	Waiting: maxPending, // with some 30 KB each
	// Connectors wait longer once the gateway has sent a packet.
	Wait: 8 * time.Second,
	// A handshake that the client does not finish must not block the others.
	MaxTime: 5 * time.Second,
}

var (
	// errPending rejects a connection; the client sees CONNECTION_REFUSED.
	errPending = errors.New("too many connections without a hello, from this network or in total")
	// errHelloBudget rejects a large hello.
	errHelloBudget = errors.New("too many large hellos at a time")
)

// pending counts connections without a valid hello by their networks.
//
//	connection                                     counted in           limit
//	over QUIC, before its ClientHello              unknown              maxPending
//	without a valid preauthentication              unknown, strangers   maxPending, maxStrangers
//	of a known connector: with a valid one         known, connectors    maxKnown, knownPerConnector
//	of a known connector beyond its limit          as without one
//
// The preauthentication is in the ClientHello or in the request for a WebSocket. In the latter, a preauthentication of
// a device with an open pairing code is also valid. It is checked only while pending is crowded.
type pending struct {
	perAddress int // the constant, except in tests

	mu         sync.Mutex
	unknown    fair.Budget    // connections of unknown clients
	strangers  int            // of these, connections without a valid preauthentication
	hellos     fair.Budget    // bytes of large hellos
	known      int            // sum of connectors
	connectors map[string]int // connections of known connectors, by id
}

func newPending() *pending {
	return &pending{
		perAddress: pendingPerAddress, connectors: make(map[string]int),
		unknown: fair.Budget{Total: maxPending}, hellos: fair.Budget{Total: helloBytes},
	}
}

// pendingConn is a connection in pending. It is counted until its hello is accepted or it ends.
type pendingConn struct {
	pending  *pending
	networks fair.Networks
	pin      string // of the identity in its handshake

	// Guarded by pending.mu:
	freed     bool
	stranger  bool
	connector string     // id of a known connector
	handshake *fair.Slot // until the end of the handshake
	hello     int        // bytes that are reserved for the hello
}

// pendingKey is the context key of a pendingConn.
type pendingKey struct{}

// verifySourceAddress is the transport's VerifySourceAddress. It reports whether a client must
// prove its address first, which takes a round trip. This includes all clients that
// may have to wait for a handshake: the retry packet shows them that the gateway is up.
func (h *Hub) verifySourceAddress(addr net.Addr) bool {
	return !h.arrivalRate.Allow() || h.pending.crowded(networksOf(addr))
}

// admit is the transport's ConnContext, called for each new connection before it
// takes any resources.
func (h *Hub) admit(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
	if h.handshakes.Closed() {
		h.counters.rejected.Add(1)
		return nil, ErrClosed
	}
	c := h.pending.add(networksOf(info.RemoteAddr), "")
	if c == nil {
		h.counters.rejected.Add(1)
		return nil, errPending
	}
	return c.bind(ctx), nil
}

// bind returns the context of the connection with c as a value, and frees c when it ends.
func (c *pendingConn) bind(ctx context.Context) context.Context {
	context.AfterFunc(ctx, c.free)
	return context.WithValue(ctx, pendingKey{}, c)
}

// pendingOf returns the pendingConn in the context of a connection.
func pendingOf(conn context.Context) *pendingConn { return conn.Value(pendingKey{}).(*pendingConn) }

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
	c := pendingOf(info.Context())
	if !c.identify(connector) {
		h.counters.rejected.Add(1)
		return nil, errPending
	}
	return nil, c.waitHandshake(info.Context(), h.handshakes)
}

// preauthenticate returns the connector id of a preauthentication, "" if it is
// invalid.
func (h *Hub) preauthenticate(text string) string {
	match := h.options.Load().Preauthenticate
	id, mac, ok := link.ParsePreauth(text)
	if !ok || match == nil {
		return ""
	}
	if identity := h.identity.Load(); identity == nil ||
		!match(id, func(secretHash []byte) bool { return link.CheckPreauth(identity.pin, id, secretHash, mac) }) {
		return ""
	}
	return id
}

// preauthenticateDevice returns the id of the pairing whose code is in a device's preauthentication, ""
// if that is invalid. The device then counts as a known connector.
func (h *Hub) preauthenticateDevice(remote net.Addr, text string) string {
	pairing, identity := h.options.Load().Pairing, h.identity.Load()
	id, mac, ok := link.ParsePreauth(text)
	if !ok || id != link.PreauthPairing || pairing == nil || identity == nil {
		return ""
	}
	expected, ok := pairing.Expects(hostOf(remote),
		func(codeHash []byte) bool { return link.CheckPreauth(identity.pin, id, codeHash, mac) })
	if !ok {
		return ""
	}
	return expected
}

// add counts a connection. It returns nil if too many of its address are counted already, or one of
// its networks has used its share. A known connector, "" for others, is counted separately.
func (p *pending) add(networks fair.Networks, connector string) *pendingConn {
	c := &pendingConn{pending: p, networks: networks}
	p.mu.Lock()
	defer p.mu.Unlock()
	if connector != "" && p.addKnown(c, connector) {
		return c
	}
	if p.unknown.UsedBy(networks.Narrowest()) >= p.perAddress || !p.unknown.Take(networks, 1) {
		return nil
	}
	return c
}

// addKnown counts a connection of a known connector, and reports whether that is below its limits.
// The caller holds the lock.
func (p *pending) addKnown(c *pendingConn, connector string) bool {
	if p.known >= maxKnown || p.connectors[connector] >= knownPerConnector {
		return false
	}
	p.known++
	p.connectors[connector]++
	c.connector = connector
	return true
}

// identify records the connector of a connection, "" for a stranger, and reports
// whether the connection may continue. Known connectors beyond their limit count as
// strangers.
func (c *pendingConn) identify(connector string) bool {
	p := c.pending
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case c.freed:
		return false
	case connector != "" && p.addKnown(c, connector):
		p.unknown.Return(c.networks, 1)
		return true
	case p.strangers >= maxStrangers:
		return false
	}
	c.stranger = true
	p.strangers++
	return true
}

// crowded reports whether so many connections of an address, or of all, are counted that new
// clients must prove their address. Packets with forged addresses can use only this
// part of the budget.
func (p *pending) crowded(networks fair.Networks) bool {
	const divisor = 8
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unknown.UsedBy(networks.Narrowest()) >= p.perAddress/divisor || p.unknown.Used() >= handshakeLimits.Slots/2
}

// waitHandshake waits until the connection may begin its handshake.
func (c *pendingConn) waitHandshake(ctx context.Context, handshakes *fair.Semaphore) error {
	permit, err := handshakes.Acquire(ctx, c.networks, c.connector != "")
	if err != nil {
		return err
	}
	c.pending.mu.Lock()
	defer c.pending.mu.Unlock()
	if c.handshake = permit; c.freed {
		permit.Release()
	}
	return nil
}

// endHandshake lets the next connection begin its handshake, since this one has no
// expensive work left.
func (c *pendingConn) endHandshake() {
	c.pending.mu.Lock()
	defer c.pending.mu.Unlock()
	if c.handshake != nil {
		c.handshake.Release()
		c.handshake = nil
	}
}

// reserveHello reserves bytes of the budget for the connection's hello.
func (c *pendingConn) reserveHello(bytes int) error {
	c.pending.mu.Lock()
	defer c.pending.mu.Unlock()
	if c.freed || !c.pending.hellos.Take(c.networks, bytes) {
		return errHelloBudget
	}
	c.hello += bytes
	return nil
}

// free stops counting the connection, once.
func (c *pendingConn) free() {
	defer c.endHandshake()
	p := c.pending
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.freed {
		return
	}
	c.freed = true
	if c.hello > 0 {
		p.hellos.Return(c.networks, c.hello)
	}
	if c.connector == "" {
		p.unknown.Return(c.networks, 1)
		if c.stranger {
			p.strangers--
		}
		return
	}
	p.known--
	if p.connectors[c.connector]--; p.connectors[c.connector] == 0 {
		delete(p.connectors, c.connector)
	}
}

// networksOf returns the networks of a remote address.
func networksOf(addr net.Addr) fair.Networks { return fair.Parse(hostOf(addr)) }
