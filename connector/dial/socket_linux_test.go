package dial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/link"
)

// TestPatientSocketLosesNothing checks that quic-go makes as much of a patient
// socket as of a bare one: packets leave several at a time and with their ECN
// marks, come in batches, and wait in buffers of the same sizes.
func TestPatientSocketLosesNothing(t *testing.T) {
	bare, watched := listenUDP(t), &brokenSocket{UDPConn: listenUDP(t)}
	want := options(t, bare)
	patient := &patientSocket{Socket: watched}
	const bytes = 4 << 20
	for _, socket := range []Socket{bare, patient} {
		newEcho(t, socket).exchange(t, bytes)
	}
	if got := options(t, bare); got == want {
		t.Error("quic-go sets no options: nothing was compared")
	} else {
		want = got
	}
	if got := options(t, patient); got != want {
		t.Errorf("the options of a patient socket are %s, of a bare one %s", got, want)
	}
	writes, several, marked := watched.writes.Load(), watched.several.Load(), watched.marked.Load()
	t.Logf("%s; %d writes, %d of several packets, %d with control messages", want, writes, several, marked)
	if marked < writes*9/10 || writes > bytes/1500/2 {
		t.Errorf("%d writes, %d of several packets, %d with control messages", writes, several, marked)
	}
	if n := watched.lone.Load(); n != 0 {
		t.Errorf("%d reads of a single packet", n)
	}
}

func listenUDP(tb testing.TB) *net.UDPConn {
	tb.Helper()
	socket, err := net.ListenUDP("udp4", nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { socket.Close() })
	return socket
}

// options returns the options that quic-go sets on a socket.
func options(t *testing.T, socket Socket) string {
	t.Helper()
	raw, err := socket.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var values [4]int
	var errs [4]error
	err = raw.Control(func(fd uintptr) {
		values[0], errs[0] = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF)
		values[1], errs[1] = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF)
		values[2], errs[2] = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_IP, syscall.IP_RECVTOS)
		values[3], errs[3] = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_IP, syscall.IP_MTU_DISCOVER)
	})
	if err = errors.Join(append(errs[:], err)...); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("buffers %d and %d, TOS %d, path MTU %d", values[0], values[1], values[2], values[3])
}

// echo is a connection to a peer on loopback that sends back what it gets.
type echo struct{ conn *quic.Conn }

func newEcho(tb testing.TB, socket Socket) *echo {
	tb.Helper()
	identity, err := link.NewIdentity()
	if err != nil {
		tb.Fatal(err)
	}
	cert, pin, err := link.Identity(identity)
	if err != nil {
		tb.Fatal(err)
	}
	listener, err := quic.ListenAddr("127.0.0.1:0", link.GatewayTLS(cert), link.GatewayQUIC())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { listener.Close() })
	go func() {
		conn, err := listener.Accept(context.Background())
		for err == nil {
			var stream *quic.Stream
			if stream, err = conn.AcceptStream(context.Background()); err == nil {
				_, err = io.Copy(stream, stream)
				stream.Close()
			}
		}
	}()
	conn, err := quic.Dial(tb.Context(), socket, listener.Addr(), link.ConnectorTLS("", pin), link.ConnectorQUIC(0))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.CloseWithError(0, "") })
	return &echo{conn}
}

// exchange sends bytes there and back.
func (e *echo) exchange(tb testing.TB, bytes int64) {
	tb.Helper()
	stream, err := e.conn.OpenStreamSync(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() {
		block := make([]byte, 64<<10)
		for left := bytes; left > 0; left -= int64(len(block)) {
			if _, err := stream.Write(block); err != nil {
				sent <- err
				return
			}
		}
		sent <- stream.Close()
	}()
	n, err := io.Copy(io.Discard, stream)
	if err = errors.Join(err, <-sent); err != nil || n != bytes {
		tb.Fatalf("%d of %d bytes came back: %v", n, bytes, err)
	}
}
