package link

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// hasBBR reports whether the kernel has BBR.
func hasBBR(t *testing.T) bool {
	t.Helper()
	text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
	if err != nil {
		t.Fatal(err)
	}
	return slices.Contains(strings.Fields(string(text)), "bbr")
}

func congestionControl(t *testing.T, conn net.Conn) string {
	t.Helper()
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var name string
	controlErr := raw.Control(func(fd uintptr) {
		name, err = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	})
	if err = errors.Join(err, controlErr); err != nil {
		t.Fatal(err)
	}
	return strings.TrimRight(name, "\x00")
}

// wrapper hides a connection, as those of TLS and of Caddy do.
type wrapper struct{ hidden net.Conn }

func (w wrapper) NetConn() net.Conn { return w.hidden }

func TestPreferBBR(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	// Reno is what each kernel has; its usual choice may be BBR already.
	reno := func(_, _ string, raw syscall.RawConn) error {
		var err error
		controlErr := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno")
		})
		return errors.Join(err, controlErr)
	}
	dial := func() net.Conn {
		dialer := net.Dialer{Control: reno}
		conn, err := dialer.DialContext(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	want := "reno"
	if hasBBR(t) {
		want = "bbr"
	}
	for name, wrap := range map[string]func(net.Conn) net.Conn{
		"bare": func(c net.Conn) net.Conn { return c },
		"TLS":  func(c net.Conn) net.Conn { return tls.Server(c, &tls.Config{}) },
		"twice": func(c net.Conn) net.Conn {
			return tls.Server(struct {
				net.Conn
				wrapper
			}{nil, wrapper{c}}, &tls.Config{})
		},
	} {
		conn := dial()
		PreferBBR(wrap(conn))
		if got := congestionControl(t, conn); got != want {
			t.Errorf("%s: %s, not %s", name, got, want)
		}
	}
	one, other := net.Pipe() // has no socket, and stays unchanged
	PreferBBR(one)
	PreferBBR(nil)
	one.Close()
	other.Close()
}
