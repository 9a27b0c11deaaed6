package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"sync"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/caddymodule/fair"
)

// defaultPending is how many connections without a valid hello one address may
// have: room for a network of connectors that comes back at once, and about
// 50 MB of handshakes.
const defaultPending = 512

// handshakesPerSecond is how many may come before each has to prove its address.
const handshakesPerSecond = 200

// errPending refuses a connection; the dialler sees CONNECTION_REFUSED.
var errPending = errors.New("too many connections of this address wait for their hello")

// pending counts connections without a valid hello by address.
type pending struct {
	mu      sync.Mutex
	counts  map[netip.Addr]int
	total   int                // of counts
	helloOf map[netip.Addr]int // bytes of large hellos
	hellos  int                // of helloOf
}

// slot is one such connection. It is freed when its hello is accepted or the
// connection ends, whichever is first.
type slot struct {
	pending *pending
	addr    netip.Addr
	unwatch func() bool

	// Under the lock of pending:
	freed bool
	pass  *pass // since it has begun its handshake
	hello int   // bytes of its hello that count
}

// slotKey is the context key of a connection's slot.
type slotKey struct{}

// verify is the transport's VerifySourceAddress: it tells whether a connection
// has to prove its address first, which costs a round trip. All have to that may
// wait at the turnstile: it is how a connector learns that the gateway is there.
func (h *Hub) verify(addr net.Addr) bool {
	return !h.handshakes.Allow() || h.pending.crowded(addr, h.options.Load().PendingPerAddress)
}

// admit is the transport's ConnContext: called for each new connection before
// anything is spent on it.
func (h *Hub) admit(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
	if h.turnstile.full() {
		h.counters.rejected.Add(1)
		return nil, errBusy
	}
	s := h.pending.take(info.RemoteAddr, h.options.Load().PendingPerAddress)
	if s == nil {
		h.counters.rejected.Add(1)
		return nil, errPending
	}
	s.unwatch = context.AfterFunc(ctx, s.free)
	return context.WithValue(ctx, slotKey{}, s), nil
}

// pace lets a QUIC connection begin its handshake when it is its turn. TLS asks
// for another configuration before it has spent anything.
func (h *Hub) pace(info *tls.ClientHelloInfo) (*tls.Config, error) {
	s, ok := info.Context().Value(slotKey{}).(*slot)
	if !ok {
		return nil, errPending // admit has seen every connection
	}
	return nil, s.enter(info.Context(), &h.turnstile)
}

// take returns a slot for addr, or nil if it has most of them already.
func (p *pending) take(addr net.Addr, most int) *slot {
	key := addressKey(addr)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.counts[key] >= p.room(most) {
		return nil
	}
	if p.counts == nil {
		p.counts = make(map[netip.Addr]int)
	}
	p.counts[key]++
	p.total++
	return &slot{pending: p, addr: key}
}

// crowded tells whether addr has so many slots that more have to prove their
// address, or all together have. Initial packets with a forged one can fill this
// part of the slots; the rest is left for those who really are there.
func (p *pending) crowded(addr net.Addr, most int) bool {
	const part = 8
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts[addressKey(addr)] >= most/part || p.total >= handshakesAtOnce/2
}

// enter waits until the connection may begin its handshake.
func (s *slot) enter(ctx context.Context, t *turnstile) error {
	pass, err := t.enter(ctx, s.addr)
	if err != nil {
		return err
	}
	s.pending.mu.Lock()
	s.pass = pass
	freed := s.freed
	s.pending.mu.Unlock()
	if freed {
		s.decide()
	}
	return nil
}

// decide makes room at the turnstile for the next connection.
func (s *slot) decide() {
	s.pending.mu.Lock()
	pass := s.pass
	s.pass = nil
	s.pending.mu.Unlock()
	if pass != nil {
		pass.leave()
	}
}

// free gives the slot back, once.
func (s *slot) free() {
	defer s.decide()
	s.pending.mu.Lock()
	defer s.pending.mu.Unlock()
	if s.freed {
		return
	}
	s.freed = true
	s.pending.total--
	s.shrink()
	if s.pending.counts[s.addr]--; s.pending.counts[s.addr] == 0 {
		delete(s.pending.counts, s.addr)
	}
}

// accepted frees the slot of a connection whose hello is valid; conn is its
// context.
func accepted(conn context.Context) {
	if s, ok := conn.Value(slotKey{}).(*slot); ok {
		s.unwatch()
		s.free()
	}
}

// makeRoom lets the next connection through the turnstile; this one has nothing left
// to do that takes long. conn is its context.
func makeRoom(conn context.Context) {
	if s, ok := conn.Value(slotKey{}).(*slot); ok {
		s.decide()
	}
}

// networksOf returns the networks of a peer.
func networksOf(addr net.Addr) fair.Networks { return fair.Parse(hostOf(addr)) }

// addressKey is what connections are counted by: the IPv4 address, or the /64
// of an IPv6 address, which is what one customer has of them.
func addressKey(addr net.Addr) netip.Addr {
	var ip netip.Addr
	switch a := addr.(type) {
	case *net.UDPAddr:
		ip = a.AddrPort().Addr().Unmap()
	case *net.TCPAddr:
		ip = a.AddrPort().Addr().Unmap()
	}
	if ip.Is6() {
		if prefix, err := ip.WithZone("").Prefix(64); err == nil {
			return prefix.Addr()
		}
	}
	return ip
}
