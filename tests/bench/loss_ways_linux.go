package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/postern-dev/postern/tests/rig"
	"github.com/postern-dev/postern/tests/rig/lab"
)

// A way is a system whose connector is at the other end of the line.
type way struct {
	*system
	name       string
	congestion [2]string
}

// ways starts the systems, on a line that loses nothing.
func (b *builder) ways(ctx context.Context, o options, l *lab.Lab) ([]way, error) {
	var ways []way
	if o.has(postern) {
		s, err := b.build(ctx, postern)
		if err != nil {
			return nil, err
		}
		ways = append(ways, way{system: s, name: wayQUIC})
	}
	if !o.has(webSocket) {
		return ways, nil
	}
	s, err := b.build(ctx, webSocket)
	if err != nil {
		return nil, err
	}
	w := way{system: s, name: wayWebSocket}
	if w.congestion, err = congestionOf(l, portOf(s.https)); err != nil {
		return nil, err
	}
	ways = append(ways, w)
	if w.congestion[0] == cubic && w.congestion[1] == cubic {
		return ways, nil // another one would be the same
	}
	if w, err = b.cubicWay(ctx, l); err != nil {
		return nil, err
	}
	return append(ways, w), nil
}

// cubicWay starts a system whose WebSocket crosses the line between a proxy and
// a relay.
func (b *builder) cubicWay(ctx context.Context, l *lab.Lab) (way, error) {
	s := b.system(webSocket)
	if err := b.startGateway(ctx, s); err != nil {
		return way{}, err
	}
	relay, err := startRelay(ctx, l, strings.TrimPrefix(s.https, "https://"))
	if err != nil {
		return way{}, err
	}
	proxy, err := startProxy(ctx, l, relay)
	if err != nil {
		return way{}, err
	}
	s.proxy = []string{"HTTPS_PROXY=" + proxy}
	if err := b.connect(ctx, s); err != nil {
		return way{}, err
	}
	if err := rig.Poll(ctx, rig.StartLimit, poll, "an answer through a proxy", s.try); err != nil {
		return way{}, err
	}
	w := way{system: s, name: wayCubic}
	w.congestion, err = congestionOf(l, portOf("//"+relay))
	return w, err
}

// portOf returns the port of a URL.
func portOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Port()
}

// startRelay takes connections at the gateway's end of the line and passes them
// on to address. It returns where.
func startRelay(ctx context.Context, l *lab.Lab, address string) (string, error) {
	// What is accepted inherits from the listener.
	listener, err := (&net.ListenConfig{Control: useCubic}).Listen(ctx, "tcp", net.JoinHostPort(l.GatewayAddress, "0"))
	if err != nil {
		return "", fmt.Errorf("listening for a relay: %w", err)
	}
	go acceptAll(ctx, listener, func(near net.Conn) {
		if far, err := net.DialTimeout("tcp", address, rig.StartLimit); err == nil {
			keepShort(far)
			splice(near, near, far)
		}
	})
	return listener.Addr().String(), nil
}

// startProxy takes CONNECT at home, and connects to the relay whatever it is
// asked for. It returns its URL.
func startProxy(ctx context.Context, l *lab.Lab, relay string) (string, error) {
	var listener net.Listener
	var err error
	l.Home.Do(func() { listener, err = net.Listen("tcp", "127.0.0.1:0") })
	if err != nil {
		return "", fmt.Errorf("listening for a proxy: %w", err)
	}
	go acceptAll(ctx, listener, func(near net.Conn) {
		keepShort(near)
		r := bufio.NewReader(near)
		request, err := http.ReadRequest(r)
		if err != nil || request.Method != http.MethodConnect {
			return
		}
		var far net.Conn
		l.Home.Do(func() {
			far, err = (&net.Dialer{Timeout: rig.StartLimit, Control: useCubic}).DialContext(ctx, "tcp", relay)
		})
		if err != nil {
			return
		}
		if _, err := io.WriteString(near, "HTTP/1.1 200 OK\r\n\r\n"); err == nil {
			splice(near, r, far)
		}
	})
	return "http://" + listener.Addr().String(), nil
}

// acceptAll serves connections until ctx ends.
func acceptAll(ctx context.Context, listener net.Listener, serve func(net.Conn)) {
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			serve(conn)
		}()
	}
}

// keepShort bounds what waits between a process and the socket on the line:
// without a proxy, nothing would.
func keepShort(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(32 << 10) // if it fails, a little more waits
	}
}

// splice copies both ways until one of them ends. What near has sent is read
// from r.
func splice(near net.Conn, r io.Reader, far net.Conn) {
	defer far.Close()
	go func() {
		_, _ = io.Copy(far, r) // the end of either is the end of both
		_ = far.SetDeadline(time.Unix(1, 0))
	}()
	_, _ = io.Copy(near, far)
}

// useCubic chooses how a socket takes lost packets.
func useCubic(_, _ string, c syscall.RawConn) error {
	var err error
	if failed := c.Control(func(fd uintptr) {
		err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, cubic)
	}); failed != nil {
		return failed
	}
	if err != nil {
		return fmt.Errorf("choosing TCP cubic: %w", err)
	}
	return nil
}

// congestionOf returns what TCP does about lost packets at both ends of the
// connection to a port of the gateway: at home, and there.
func congestionOf(l *lab.Lab, port string) (both [2]string, err error) {
	for i, at := range []struct {
		in     *lab.Namespace
		filter string
	}{{l.Home, "dport"}, {l.Gateway, "sport"}} {
		var out []byte
		at.in.Do(func() { out, err = exec.Command("ss", "-tinH", at.filter, "=", ":"+port).Output() })
		if err != nil {
			return both, fmt.Errorf("asking ss about TCP: %w", err)
		}
		if both[i], err = parseCongestion(string(out)); err != nil {
			return both, err
		}
	}
	return both, nil
}

// parseCongestion finds the one that is in use in what `ss -ti` prints.
func parseCongestion(text string) (string, error) {
	for word := range strings.FieldsSeq(text) {
		if word == bbr || word == cubic || word == "reno" {
			return word, nil
		}
	}
	return "", errors.New("asking ss about TCP: it shows no connection with a congestion control that is known here")
}
