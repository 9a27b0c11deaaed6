package dial

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"

	"github.com/postern-dev/postern/connector/link"
)

// brokenSocket fails to write with an error that tests choose, and watches what
// quic-go makes of it.
type brokenSocket struct {
	*net.UDPConn
	err    atomic.Pointer[error]
	failed atomic.Int64 // writes
	// in all; of several packets; with control messages; reads of a single packet
	writes, several, marked, lone atomic.Int64
}

func (s *brokenSocket) fail(err error) {
	if err != nil {
		err = &net.OpError{Op: "write", Net: "udp4", Err: os.NewSyscallError("sendmsg", err)}
	}
	s.err.Store(&err)
}

func (s *brokenSocket) failure() error {
	if err := s.err.Load(); err != nil && *err != nil {
		s.failed.Add(1)
		return *err
	}
	return nil
}

func (s *brokenSocket) WriteMsgUDP(b, oob []byte, addr *net.UDPAddr) (n, oobn int, err error) {
	if err := s.failure(); err != nil {
		return 0, 0, err
	}
	s.writes.Add(1)
	if len(b) > 1500 {
		s.several.Add(1)
	}
	if len(oob) > 0 {
		s.marked.Add(1)
	}
	return s.UDPConn.WriteMsgUDP(b, oob, addr)
}

func (s *brokenSocket) WriteTo(b []byte, addr net.Addr) (int, error) {
	if err := s.failure(); err != nil {
		return 0, err
	}
	return s.UDPConn.WriteTo(b, addr)
}

func (s *brokenSocket) ReadFrom(b []byte) (int, net.Addr, error) {
	s.lone.Add(1)
	return s.UDPConn.ReadFrom(b)
}

func (s *brokenSocket) ReadMsgUDP(b, oob []byte) (n, oobn, flags int, addr *net.UDPAddr, err error) {
	s.lone.Add(1)
	return s.UDPConn.ReadMsgUDP(b, oob)
}

// opening lets a dialer open broken sockets, the last of which is in the box.
func opening(t *testing.T, box *atomic.Pointer[brokenSocket], err error) func(string) (Socket, error) {
	return func(network string) (Socket, error) {
		socket, failed := net.ListenUDP(network, nil)
		if failed != nil {
			t.Error(failed)
			return nil, failed
		}
		broken := &brokenSocket{UDPConn: socket}
		broken.fail(err)
		box.Store(broken)
		return broken, nil
	}
}

// A dial has no patience: it fails at once, and says why.
func TestDialWithoutARoute(t *testing.T) {
	var box atomic.Pointer[brokenSocket]
	d := NewQUIC(Target{Server: "gateway.example:7", Token: func() link.Token { return link.Token{} }})
	d.Open = opening(t, &box, noRouteErrors[0])
	d.Resolve = func(context.Context, string) ([]netip.AddrPort, error) {
		return []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:7"), netip.MustParseAddrPort("127.0.0.2:7")}, nil
	}
	_, err := d.Dial(t.Context())
	if n := box.Load().failed.Load(); n != 1 {
		t.Errorf("%d packets could not be sent before it failed", n)
	}
	if !errors.Is(err, noRouteErrors[0]) || !NoRoute(err) {
		t.Errorf("got %v", err)
	}
}
