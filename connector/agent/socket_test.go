package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// brokenSocket fails to write with an error that tests choose, and watches what
// quic-go makes of it.
type brokenSocket struct {
	*net.UDPConn
	err                           atomic.Pointer[error]
	failed                        atomic.Int64 // writes
	writes, several, marked, lone atomic.Int64 // in all; of several packets; with control messages; reads of a single packet
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
func opening(t *testing.T, box *atomic.Pointer[brokenSocket], err error) func(string) (udpSocket, error) {
	return func(network string) (udpSocket, error) {
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

// startTicker runs an agent on broken sockets, and a stream through it that
// counts until the test ends.
func startTicker(t *testing.T) (socket *brokenSocket, s *fakeSession, lines *bufio.Scanner) {
	t.Helper()
	g := startGateway(t)
	server := serveModel(t, func(w http.ResponseWriter, r *http.Request) {
		for i := 0; r.Context().Err() == nil; i++ {
			fmt.Fprintln(w, i)
			w.(http.Flusher).Flush()
			time.Sleep(20 * time.Millisecond)
		}
	})
	var box atomic.Pointer[brokenSocket]
	startAgent(t, g, server.URL, func(a *Agent) { a.dialer.open = opening(t, &box, nil) })
	s = g.session()
	answer, err := s.roundTrip(post(t.Context(), "{}"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	return box.Load(), s, bufio.NewScanner(answer.Body)
}

// A machine without a route for 2 s, in the middle of a stream, loses nothing
// of it.
func TestStreamOutlivesARoute(t *testing.T) {
	socket, s, lines := startTicker(t)
	line := 0
	read := func(until time.Time) {
		for time.Now().Before(until) {
			if !lines.Scan() {
				t.Fatalf("the stream ended after %d lines: %v, %v", line, lines.Err(), context.Cause(s.conn.Context()))
			}
			if lines.Text() != fmt.Sprint(line) {
				t.Fatalf("line %d is %q", line, lines.Text())
			}
			line++
		}
	}
	read(time.Now().Add(200 * time.Millisecond))
	socket.fail(noWayErrors[0])
	time.AfterFunc(2*time.Second, func() { socket.fail(nil) })
	start, before := time.Now(), line
	read(start.Add(2100 * time.Millisecond)) // blocks meanwhile
	back := time.Since(start) - 2*time.Second
	read(time.Now().Add(300 * time.Millisecond))
	t.Logf("%d writes failed; the stream went on %v after the route's return; %d lines since", socket.failed.Load(), back, line-before)
	if socket.failed.Load() < 3 || line-before < 20 {
		t.Error("nothing was tested")
	}
	if n := s.gateway.count(); n != 1 {
		t.Errorf("%d hellos", n)
	}
}

// Each error that means no way is a lost packet; any other ends the tunnel, as
// quic-go has it.
func TestOtherErrorsEndTheTunnel(t *testing.T) {
	socket, s, _ := startTicker(t)
	for _, err := range noWayErrors {
		before := socket.failed.Load()
		socket.fail(err)
		eventually(t, "a write that fails", func() bool { return socket.failed.Load() > before+1 })
		socket.fail(nil)
	}
	if n := s.gateway.count(); n != 1 {
		t.Fatalf("%d hellos after errors that tell of no way", n)
	}
	socket.fail(syscall.EINVAL) // the next tunnel has a socket of its own
	eventually(t, "another tunnel", func() bool { return s.gateway.count() > 1 })
}

// A dial has no patience: it fails at once, and says why.
func TestDialWithoutARoute(t *testing.T) {
	var box atomic.Pointer[brokenSocket]
	d := newDialer("gateway.example:7", "", "")
	d.open = opening(t, &box, noWayErrors[0])
	d.resolve = func(context.Context, string) ([]netip.AddrPort, error) {
		return []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:7"), netip.MustParseAddrPort("127.0.0.2:7")}, nil
	}
	start := time.Now()
	_, err := d.dial(t.Context())
	if took := time.Since(start); took > time.Second {
		t.Errorf("it took %v", took)
	}
	if !errors.Is(err, noWayErrors[0]) || !stranded(err) {
		t.Errorf("got %v", err)
	}
}
