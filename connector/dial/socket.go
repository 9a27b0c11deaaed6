package dial

import (
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/quic-go/quic-go"
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
// failed write. An established connection waits for its idle timeout instead.
type patientSocket struct {
	Socket
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

// WriteMsgUDP implements [quic.OOBCapablePacketConn].
func (s *patientSocket) WriteMsgUDP(b, oob []byte, addr *net.UDPAddr) (n, oobn int, err error) {
	n, oobn, err = s.Socket.WriteMsgUDP(b, oob, addr)
	if err != nil && s.countsAsLoss(err) {
		return len(b), len(oob), nil
	}
	return n, oobn, err
}

// WriteTo implements [net.PacketConn], for systems where quic-go does not use WriteMsgUDP.
func (s *patientSocket) WriteTo(b []byte, addr net.Addr) (int, error) {
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
