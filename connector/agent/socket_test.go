//go:build unix

package agent

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

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

// startTicker runs an agent on broken sockets, with a stream that counts until the test ends.
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
	startAgent(t, g, server.URL, func(a *instance) {
		a.config.quic.Open = func(network string) (dial.Socket, error) {
			socket, err := net.ListenUDP(network, nil)
			if err != nil {
				return nil, err
			}
			box.Store(&brokenSocket{UDPConn: socket})
			return box.Load(), nil
		}
	})
	s = g.session()
	answer, err := s.roundTrip(post(t.Context(), "{}"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	return box.Load(), s, bufio.NewScanner(answer.Body)
}

// A machine that loses its route during a stream for a while loses nothing of the stream.
func TestStreamOutlivesARoute(t *testing.T) {
	t.Parallel()
	socket, s, lines := startTicker(t)
	line := 0
	read := func(n int) {
		for range n {
			if !lines.Scan() {
				t.Fatalf("the stream ended after %d lines: %v, %v", line, lines.Err(), context.Cause(s.conn.Context()))
			}
			if lines.Text() != fmt.Sprint(line) {
				t.Fatalf("line %d is %q", line, lines.Text())
			}
			line++
		}
	}
	read(10)
	socket.fail(noRoute[0])
	wait.Until(t, "writes that fail", func() bool { return socket.failed.Load() >= 10 })
	socket.fail(nil)
	read(50) // many more than were in flight
	if n := s.gateway.count(); n != 1 {
		t.Errorf("%d hellos", n)
	}
}

// Each error for a missing route counts as a lost packet. Any other error ends the tunnel, as
// in quic-go.
func TestOtherErrorsEndTheTunnel(t *testing.T) {
	socket, s, _ := startTicker(t)
	for _, err := range noRoute {
		before := socket.failed.Load()
		socket.fail(err)
		wait.Until(t, "a write that fails", func() bool { return socket.failed.Load() > before+1 })
		socket.fail(nil)
	}
	if n := s.gateway.count(); n != 1 {
		t.Fatalf("%d hellos after errors without a route", n)
	}
	socket.fail(syscall.EINVAL) // the next tunnel has a socket of its own
	wait.Until(t, "another tunnel", func() bool { return s.gateway.count() > 1 })
}
