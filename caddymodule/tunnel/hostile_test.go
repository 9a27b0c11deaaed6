package tunnel

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// drip writes a byte a second until that fails.
func drip(w io.Writer, start string) {
	_, err := io.WriteString(w, start)
	for ; err == nil; time.Sleep(time.Second) {
		_, err = w.Write([]byte{'{'})
	}
}

// length is the length of a control message, which follows or not.
func length(n uint32) string { return string(binary.BigEndian.AppendUint32(nil, n)) }

// TestBadHellos: who says no hello is gone at once, or when its time is up. All
// come together, so that the time passes once.
func TestBadHellos(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		g := newGateway(t, Options{})
		var all sync.WaitGroup
		for name, test := range map[string]struct {
			say  func(io.Writer)
			slow bool
		}{
			"another message":      {func(w io.Writer) { _ = link.NewControl(asReadWriter{w}).Send(link.Ping{}) }, false},
			"noise":                {says(length(8) + "GET / HTTP/1.1\r\n\r\n"), false},
			"no JSON":              {says(length(8) + "{{{{{{{{"), false},
			"an early end":         {func(w io.Writer) { _ = w.(io.Closer).Close() }, false},
			"only the length":      {says(length(300 << 10)), true},
			"half a length":        {says("\x00\x00"), true},
			"large and unfinished": {says(length(300<<10) + strings.Repeat(" ", 200<<10)), true},
			"a byte a second":      {func(w io.Writer) { drip(w, length(100)) }, true},
		} {
			all.Go(func() {
				at := time.Now()
				cause := g.rejected(t, test.say)
				most := helloTimeout - soon
				if test.slow {
					most = helloTimeout + 4*soon
				}
				if code, ok := link.CloseReason(cause); !ok || code != link.CloseProtocol || time.Since(at) > most {
					t.Errorf("%s: closed with %v after %v", name, cause, time.Since(at))
				}
			})
		}
		all.Wait()
		wait.Until(t, "all slots are free", func() bool { return slots(g) == 0 })
	})
}

func says(what string) func(io.Writer) {
	return func(w io.Writer) { _, _ = io.WriteString(w, what) }
}

// rejected makes a connection that says something on its control stream, and
// returns the cause of its end.
func (g *testGateway) rejected(t *testing.T, say func(io.Writer)) error {
	conn, err := g.connection(t.Context(), g.socket(t))
	if err != nil {
		return err
	}
	control, err := conn.OpenStreamSync(t.Context())
	if err != nil {
		return err
	}
	var saying sync.WaitGroup
	defer saying.Wait()
	saying.Go(func() { say(control) })
	_, _ = io.Copy(io.Discard, control)
	<-conn.Context().Done()
	return context.Cause(conn.Context())
}

// asReadWriter is a control stream to write to.
type asReadWriter struct{ io.Writer }

func (asReadWriter) Read([]byte) (int, error) { return 0, io.EOF }

// TestNoControlStream: a connection that never opens one has no longer.
func TestNoControlStream(t *testing.T) {
	simulate(t, time.Millisecond, func(t *testing.T, _ *network, g *testGateway, sockets []net.PacketConn) {
		at := time.Now()
		conn, err := g.connection(t.Context(), sockets[0])
		if err != nil {
			t.Fatal(err)
		}
		wait.For(t, conn.Context().Done(), "the close")
		if d := time.Since(at); d < helloTimeout || d > helloTimeout+soon {
			t.Errorf("it was closed after %v", d)
		}
		wait.Until(t, "its slot is free", func() bool { return slots(g) == 0 && g.Counters().Rejected == 1 })
	})
}

// TestSlowHandshakeOverWebSocket: the handshake inside has its time too.
func TestSlowHandshakeOverWebSocket(t *testing.T) {
	simulate(t, time.Millisecond, func(t *testing.T, _ *network, g *testGateway, _ []net.PacketConn) {
		g.overPipes(t)
		var all sync.WaitGroup
		for name, say := range map[string]func(io.Writer){
			"silence":         func(io.Writer) {},
			"a byte a second": func(w io.Writer) { drip(w, "\x04\xb0\xc0\x00\x00\x00\x01") },
		} {
			all.Go(func() {
				at := time.Now()
				s, err := g.dialWebSocket(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				defer s.CloseNow()
				conn := websocket.NetConn(t.Context(), s, websocket.MessageBinary)
				all.Go(func() { say(conn) })
				_, _ = io.Copy(io.Discard, conn)
				if d := time.Since(at); d > helloTimeout+soon {
					t.Errorf("%s: it was closed after %v", name, d)
				}
			})
		}
		all.Wait()
		wait.Until(t, "the slots are free", func() bool { return slots(g) == 0 && g.Counters().Rejected == 2 })
	})
}

// TestSlowControlMessage: after the hello, a message may take as long as a connector may be silent.
// Meanwhile, other connectors do not wait.
func TestSlowControlMessage(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		g := newGateway(t, Options{})
		g.connect(t, "con_2", echo).beats()
		c := g.connect(t, "con_1", echo)
		at := time.Now()
		var dripping sync.WaitGroup
		defer dripping.Wait()
		dripping.Go(func() { drip(c.stream, length(100)) })
		wait.Until(t, "others are served", func() bool {
			body, err := g.do(t, "con_2", "hi")
			return body == "hi" && err == nil
		})
		select {
		case <-c.conn.Context().Done():
		case <-time.After(lostAfter + soon):
			t.Fatal("it stays")
		}
		if code := c.ended(t); code != link.CloseLost || time.Since(at) < soon {
			t.Errorf("closed with %v after %v", code, time.Since(at))
		}
		if body, err := g.do(t, "con_2", "hi"); body != "hi" || err != nil {
			t.Errorf("the other: %q, %v", body, err)
		}
	})
}

// TestGarbageAfterHello ends the session; an unknown message does not.
func TestGarbageAfterHello(t *testing.T) {
	for name, garbage := range map[string]string{
		"noise":     "GET / HTTP/1.1\r\n\r\n",
		"no JSON":   length(8) + "{{{{{{{{",
		"oversized": length(1<<20 + 1),
		"types":     length(31) + `{"type":"report","data":"noise"}`[:31],
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
				g := newGateway(t, Options{})
				c := g.connect(t, "con_1", echo)
				other := `{"type":"later"}`
				// It may fail: the session can end before all is written.
				_, _ = io.WriteString(c.stream, length(uint32(len(other)))+other+garbage)
				if code := c.ended(t); code != link.CloseProtocol {
					t.Errorf("closed with %v", code)
				}
				wait.Until(t, "it is gone", func() bool { return len(g.Sessions()) == 0 })
			})
		})
	}
}

// TestControlMessagesArePaced: the gateway reads messages of a flooding connector at a limited
// rate, and others are not affected.
func TestControlMessagesArePaced(t *testing.T) {
	t.Parallel()
	overBothReal(t, func(t *testing.T, newGateway gatewayMaker) {
		t.Parallel()
		g := newGateway(t, Options{})
		g.connect(t, "con_other", echo).beats()
		start := time.Now()
		stop := start.Add(2 * time.Second)
		var all sync.WaitGroup
		for name, m := range map[string]link.Message{
			"pings":  link.Ping{},
			"drains": link.Drain{},
		} {
			c := g.connect(t, "con_"+name, newGate()) // a drain waits for the request
			background(t, g.mustSession(t, "con_"+name))
			all.Go(func() {
				for c.control.Send(m) == nil && time.Now().Before(stop) {
				}
			})
			all.Go(func() {
				answers := 0
				for range c.messages {
					answers++
				}
				took := time.Since(start)
				if most := messagesAtOnce + int(took.Seconds()+1)*messagesPerSecond; answers > most {
					t.Errorf("%d of the %s were answered in %v", answers, name, took)
				}
			})
		}
		for time.Now().Before(stop) {
			if body, err := g.do(t, "con_other", "hi"); body != "hi" || err != nil {
				t.Errorf("the other: %q, %v", body, err)
				break
			}
		}
		for _, name := range []string{"pings", "drains"} {
			g.Disconnect("con_"+name, link.CloseRemoved)
		}
		all.Wait()
	})
}

// TestNoStreamsOfConnectors: connectors may open only the control stream. A few more are allowed for
// later versions; they are not read, and take no memory.
func TestNoStreamsOfConnectors(t *testing.T) {
	g := newGateway(t, Options{})
	socket := listenLoopback(t)
	defer socket.Close()
	conn, err := quic.Dial(t.Context(), socket, g.addr, link.ConnectorTLS("", g.Pin()), link.ConnectorQUIC(0))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseWithError(0, "") }()
	stream, err := conn.OpenStreamSync(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	control := link.NewControl(stream)
	if err := control.Send(hello("con_1")); err != nil {
		t.Fatal(err)
	}
	if m, err := control.Receive(); err != nil {
		t.Fatal(m, err)
	}
	before := runtime.NumGoroutine()
	var full *quic.StreamLimitReachedError
	opened, taken := 0, 0
	for ; err == nil && opened < 100; opened++ {
		var s *quic.Stream
		if s, err = conn.OpenStream(); err == nil {
			_ = s.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
			n, _ := s.Write(make([]byte, 4<<20))
			taken += n
		}
	}
	if !errors.As(err, &full) || opened > 4 {
		t.Errorf("%d streams were opened, %v", opened, err)
	}
	if _, err := conn.OpenUniStream(); !errors.As(err, &full) {
		t.Errorf("a stream of one direction: %v", err)
	}
	if taken > 3<<20 {
		t.Errorf("they took %d bytes", taken)
	}
	if n := runtime.NumGoroutine(); n > before+8 {
		t.Errorf("%d goroutines more", n-before)
	}
	if err := control.Send(link.Ping{}); err != nil {
		t.Error(err)
	}
	if m, err := control.Receive(); err != nil {
		t.Errorf("the control stream: %v, %v", m, err)
	}
}
