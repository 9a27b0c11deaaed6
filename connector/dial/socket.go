package dial

import (
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/quic-go/quic-go"
)

// Socket is the part of a [net.UDPConn] that quic-go uses. It finds out by
// type assertions: without one of these methods it would do without offloading,
// without reads in batches, or with small buffers, and say nothing.
type Socket interface {
	quic.OOBCapablePacketConn
	net.Conn
	SetWriteBuffer(bytes int) error
}

// openSocket opens a UDP socket on a port of the system's choice.
func openSocket(network string) (Socket, error) {
	socket, err := net.ListenUDP(network, nil)
	if err != nil {
		return nil, err // not a nil *net.UDPConn, which would be a socket
	}
	return socket, nil
}

// patientSocket is a socket that outlives the machine's way to the gateway.
// While a network card is down, or the route not there yet, each write fails, and
// quic-go ends a connection at the first that does. To a connection that is up
// such a packet is a lost one: whether the path is gone is for its pings to find
// out.
type patientSocket struct {
	Socket
	activity *Activity
	probe    probe
	// patient begins after the handshake, which is better off with the next address,
	// or with another attempt.
	patient atomic.Bool
	failed  atomic.Pointer[error] // the last write that failed for want of a way
}

// failure returns why the last packet that did not leave the machine did not;
// quic-go keeps only the text of it.
func (s *patientSocket) failure() error {
	if err := s.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// SyscallConn implements [syscall.Conn]. Packets are read in batches by what it
// returns, past all the other methods.
func (s *patientSocket) SyscallConn() (syscall.RawConn, error) {
	raw, err := s.Socket.SyscallConn()
	if err != nil {
		return raw, err
	}
	return recordingConn{raw, s.activity}, nil
}

// recordingConn records what is read.
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

// ReadFrom implements [net.PacketConn], for systems without batches.
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

// WriteTo implements [net.PacketConn], for systems where quic-go has no use for
// WriteMsgUDP.
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

// noWay reports whether a packet did not leave this machine.
func noWay(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno) && slices.Contains(noWayErrors[:], errno)
}

// NoRoute reports whether everything that was tried came to nothing on this machine. One
// address without a way is no sign of that: many machines have none for IPv6.
func NoRoute(err error) bool {
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		errs := e.Unwrap()
		return len(errs) > 0 && !slices.ContainsFunc(errs, func(err error) bool { return !NoRoute(err) })
	case *net.DNSError: // keeps the text alone; the resolver answered if it knows of no such name
		return !e.IsNotFound && !e.IsTimeout
	case interface{ Unwrap() error }:
		return NoRoute(e.Unwrap())
	default:
		return noWay(err)
	}
}
