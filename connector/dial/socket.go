package dial

import (
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/link"
)

// Socket is the part of a [net.UDPConn] that quic-go uses. quic-go finds these methods by
// type assertions. Without one, it silently works without offloading, without batched
// reads, or with small buffers.
type Socket interface {
	quic.OOBCapablePacketConn
	net.Conn
	SetWriteBuffer(bytes int) error
}

// openSocket opens a UDP socket on a port of the system's choice.
func openSocket(network string) (Socket, error) {
	socket, err := net.ListenUDP(network, nil)
	if err != nil {
		return nil, err // not a nil *net.UDPConn in an interface
	}
	return socket, nil
}

// patientSocket is a socket that treats a missing route as packet loss. While a network
// interface is down, each write fails, and quic-go closes a connection on the first
// failed write. An established connection detects a dead path by its pings instead.
type patientSocket struct {
	Socket
	activity *Activity
	probe    probe
	// patient is set after the handshake. Before that, the next address or another
	// attempt is better.
	patient atomic.Bool
	failed  atomic.Pointer[error] // of the last write without a route
}

// failure returns the error of the last packet that could not be sent. quic-go keeps only
// its text.
func (s *patientSocket) failure() error {
	if err := s.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// SyscallConn implements [syscall.Conn]. Batched reads use its result and bypass all other
// methods.
func (s *patientSocket) SyscallConn() (syscall.RawConn, error) {
	raw, err := s.Socket.SyscallConn()
	if err != nil {
		return raw, err
	}
	return recordingConn{raw, s.activity}, nil
}

// recordingConn records reads as activity.
type recordingConn struct {
	syscall.RawConn
	activity *Activity
}

// Read implements [syscall.RawConn].
func (h recordingConn) Read(f func(fd uintptr) bool) error {
	err := h.RawConn.Read(f)
	if err == nil {
		h.activity.receive()
	}
	return err
}

// ReadFrom implements [net.PacketConn], for systems without batched reads.
func (s *patientSocket) ReadFrom(b []byte) (int, net.Addr, error) {
	n, from, err := s.Socket.ReadFrom(b)
	if err == nil {
		s.activity.receive()
	}
	return n, from, err
}

// WriteMsgUDP implements [quic.OOBCapablePacketConn].
func (s *patientSocket) WriteMsgUDP(b, oob []byte, addr *net.UDPAddr) (n, oobn int, err error) {
	s.activity.sending()
	s.probe.remember(b, oob, addr)
	n, oobn, err = s.Socket.WriteMsgUDP(b, oob, addr)
	if err != nil && s.countsAsLoss(err) {
		return len(b), len(oob), nil
	}
	return n, oobn, err
}

// WriteTo implements [net.PacketConn], for systems where quic-go does not use WriteMsgUDP.
func (s *patientSocket) WriteTo(b []byte, addr net.Addr) (int, error) {
	s.activity.sending()
	s.probe.remember(b, nil, addr)
	n, err := s.Socket.WriteTo(b, addr)
	if err != nil && s.countsAsLoss(err) {
		return len(b), nil
	}
	return n, err
}

// countsAsLoss reports whether a write error is treated as packet loss.
func (s *patientSocket) countsAsLoss(err error) bool {
	if !isNoRoute(err) {
		return false // quic-go handles oversized packets and failed offloading
	}
	if s.patient.Load() {
		return true
	}
	failed := err // a copy, so that err itself does not escape to the heap
	s.failed.Store(&failed)
	return false
}

// isNoRoute reports whether a packet could not leave this machine.
func isNoRoute(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno) && slices.Contains(noRouteErrors[:], errno)
}

// NoRoute reports whether all attempts failed for lack of a route on this machine. One
// address without a route is not enough: many machines have no IPv6.
func NoRoute(err error) bool {
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		errs := e.Unwrap()
		return len(errs) > 0 && !slices.ContainsFunc(errs, func(err error) bool { return !NoRoute(err) })
	case *net.DNSError: // does not wrap its cause; IsNotFound means that the resolver answered
		return !e.IsNotFound && !e.IsTimeout
	case interface{ Unwrap() error }:
		return NoRoute(e.Unwrap())
	default:
		return isNoRoute(err)
	}
}

// maxProbe is larger than any packet. Longer writes contain several packets.
const maxProbe = 2048

// probe is the last packet of a socket, to be sent again. quic-go probes a dead path with
// pauses that double, and meanwhile sends nothing else if the congestion window is full.
// A repeated packet is harmless, and recovers the tunnel as soon as its path works
// again. A restarted gateway answers it with a reset.
type probe struct {
	mu          sync.Mutex
	packet, oob []byte
	addr        net.Addr // nil: no packet
}

func (p *probe) remember(b, oob []byte, addr net.Addr) {
	if len(b) > maxProbe {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.packet, p.oob, p.addr = append(p.packet[:0], b...), append(p.oob[:0], oob...), addr
}

// send sends the packet, if there is one. Errors are ignored, as quic-go's own packets
// would fail too.
func (p *probe) send(socket Socket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if addr, ok := p.addr.(*net.UDPAddr); ok {
		_, _, _ = socket.WriteMsgUDP(p.packet, p.oob, addr)
	}
}

// Conn is a connection to a gateway.
type Conn struct {
	*link.Conn
	socket *patientSocket // over UDP
}

// ProbePath sends the last packet again. It has no effect over a WebSocket.
func (c *Conn) ProbePath() {
	if c.socket != nil {
		c.socket.probe.send(c.socket.Socket)
	}
}
