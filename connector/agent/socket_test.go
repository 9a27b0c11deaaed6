//go:build unix

package agent

import (
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/postern-dev/postern/connector/dial"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// brokenSocket fails to write with an error that tests choose.
type brokenSocket struct {
	*net.UDPConn
	err    atomic.Pointer[error]
	failed atomic.Int64 // writes
}

func (s *brokenSocket) fail(err error) {
	if err != nil {
		err = &net.OpError{Op: "write", Net: "udp4", Err: os.NewSyscallError("sendmsg", err)}
	}
	s.err.Store(&err)
}

func (s *brokenSocket) WriteMsgUDP(b, oob []byte, addr *net.UDPAddr) (n, oobn int, err error) {
	if err := s.err.Load(); err != nil && *err != nil {
		s.failed.Add(1)
		return 0, 0, *err
	}
	return s.UDPConn.WriteMsgUDP(b, oob, addr)
}

func (s *brokenSocket) WriteTo(b []byte, addr net.Addr) (int, error) {
	if err := s.err.Load(); err != nil && *err != nil {
		s.failed.Add(1)
		return 0, *err
	}
	return s.UDPConn.WriteTo(b, addr)
}

// noRoute lists the errors that count as lost packets.
var noRoute = []error{
	syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.ENETDOWN, syscall.ENOBUFS, syscall.EPERM,
	syscall.EADDRNOTAVAIL,
}

// Each error for a missing route counts as a lost packet. Any other error ends the tunnel, as
// in quic-go.
func TestOtherErrorsEndTheTunnel(t *testing.T) {
	g := startGateway(t)
	var box atomic.Pointer[brokenSocket]
	startAgent(t, g, "http://127.0.0.1:1", func(a *instance) {
		a.config.quic.Open = func(network string) (dial.Socket, error) {
			socket, err := net.ListenUDP(network, nil)
			if err != nil {
				return nil, err
			}
			box.Store(&brokenSocket{UDPConn: socket})
			return box.Load(), nil
		}
	})
	g.session()
	socket := box.Load()
	for _, err := range noRoute {
		before := socket.failed.Load()
		socket.fail(err)
		wait.Until(t, "a write that fails", func() bool { return socket.failed.Load() > before+1 })
		socket.fail(nil)
	}
	if n := g.count(); n != 1 {
		t.Fatalf("%d hellos after errors without a route", n)
	}
	socket.fail(syscall.EINVAL) // the next tunnel has a socket of its own
	wait.Until(t, "another tunnel", func() bool { return g.count() > 1 })
}
