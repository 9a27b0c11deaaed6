package agent

import (
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/quic-go/quic-go"
)

// udpSocket is what quic-go makes use of in a [net.UDPConn]. It finds out by
// type assertions: without one of these methods it would do without offloading,
// without reads in batches, or with small buffers, and say nothing.
type udpSocket interface {
	quic.OOBCapablePacketConn
	net.Conn
	SetWriteBuffer(bytes int) error
}

// openSocket opens a UDP socket on a port of the system's choice.
func openSocket(network string) (udpSocket, error) {
	socket, err := net.ListenUDP(network, nil)
	if err != nil {
		return nil, err // not a nil *net.UDPConn, which would be a socket
	}
	return socket, nil
}

// patientSocket is a socket that outlives the machine's way to the gateway.
// While a card is down, or the route not there yet, each write fails, and
// quic-go ends a connection at the first that does. To a connection that is up
// such a packet is a lost one: whether the path is gone is for its pings to find
// out.
type patientSocket struct {
	udpSocket
	heard   *ear // nil: nobody listens
	patient atomic.Bool
	failed  atomic.Pointer[error] // the last write that failed for want of a way
}

// endure begins the patience. A handshake has none: it is better off with the
// next address, or with another attempt.
func (s *patientSocket) endure() { s.patient.Store(true) }

// failure returns why the last packet that did not leave the machine did not;
// quic-go keeps no more of it than the text.
func (s *patientSocket) failure() error {
	if err := s.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// SyscallConn implements [syscall.Conn]. Packets are read in batches by what it
// returns, past all the other methods.
func (s *patientSocket) SyscallConn() (syscall.RawConn, error) {
	raw, err := s.udpSocket.SyscallConn()
	if err != nil || s.heard == nil {
		return raw, err
	}
	return hearing{raw, s.heard}, nil
}

// hearing tells an ear of what is read.
type hearing struct {
	syscall.RawConn
	heard *ear
}

// Read implements [syscall.RawConn].
func (h hearing) Read(f func(fd uintptr) bool) error {
	err := h.RawConn.Read(f)
	if err == nil {
		h.heard.hear()
	}
	return err
}

// ReadFrom implements [net.PacketConn], for systems without batches.
func (s *patientSocket) ReadFrom(b []byte) (int, net.Addr, error) {
	n, from, err := s.udpSocket.ReadFrom(b)
	if err == nil && s.heard != nil {
		s.heard.hear()
	}
	return n, from, err
}

// WriteMsgUDP implements [quic.OOBCapablePacketConn].
func (s *patientSocket) WriteMsgUDP(b, oob []byte, addr *net.UDPAddr) (n, oobn int, err error) {
	s.speak()
	n, oobn, err = s.udpSocket.WriteMsgUDP(b, oob, addr)
	if err != nil && s.bears(err) {
		return len(b), len(oob), nil
	}
	return n, oobn, err
}

// WriteTo implements [net.PacketConn], for systems where quic-go has no use for
// WriteMsgUDP.
func (s *patientSocket) WriteTo(b []byte, addr net.Addr) (int, error) {
	s.speak()
	n, err := s.udpSocket.WriteTo(b, addr)
	if err != nil && s.bears(err) {
		return len(b), nil
	}
	return n, err
}

func (s *patientSocket) speak() {
	if s.heard != nil {
		s.heard.speak()
	}
}

// bears tells whether a write that failed so counts as a lost packet.
func (s *patientSocket) bears(err error) bool {
	if !noWay(err) {
		return false // quic-go has its own answers to a packet too long, or to a card that cannot offload
	}
	if s.patient.Load() {
		return true
	}
	failed := err // only here, since it costs an allocation
	s.failed.Store(&failed)
	return false
}

// noWay tells whether a packet did not leave this machine.
func noWay(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno) && slices.Contains(noWayErrors[:], errno)
}

// stranded tells whether all that was tried came to nothing on this machine. One
// address without a way is no sign of that: many machines have none for IPv6.
func stranded(err error) bool {
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		errs := e.Unwrap()
		return len(errs) > 0 && !slices.ContainsFunc(errs, func(err error) bool { return !stranded(err) })
	case *net.DNSError: // keeps the text alone; the resolver answered if it knows of no such name
		return !e.IsNotFound && !e.IsTimeout
	case interface{ Unwrap() error }:
		return stranded(e.Unwrap())
	default:
		return noWay(err)
	}
}
