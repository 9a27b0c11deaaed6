package caddymodule

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/coder/websocket"
	"golang.org/x/sys/unix"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// keeper is a listener that records the sockets of the connections that it accepts.
type keeper struct {
	net.Listener
	accepted chan *net.TCPConn
}

func (k *keeper) Accept() (net.Conn, error) {
	conn, err := k.Listener.Accept()
	if tcp, ok := conn.(*net.TCPConn); ok {
		k.accepted <- tcp
	}
	return conn, err
}

// TestTunnelsGetBBR: the gateway sets BBR for a tunnel over HTTPS if the kernel has it, through TLS
// and the recorder of the access log.
func TestTunnelsGetBBR(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
	if err != nil {
		t.Fatal(err)
	}
	site := newTestSite(t, "log {\n output discard\n}\nmodel_gateway")
	httpApp, err := site.app.ctx.AppIfConfigured("http")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(httpApp.(*caddyhttp.App).Servers["srv0"])
	server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, caddyhttp.ConnCtxKey, c)
	}
	_ = server.Listener.Close()
	// Each kernel has Reno; its default may be BBR already.
	listener, err := (&net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		controlErr := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno")
		})
		return errors.Join(err, controlErr)
	}}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	sockets := &keeper{listener, make(chan *net.TCPConn, 4)}
	server.Listener = sockets
	server.StartTLS()
	t.Cleanup(server.Close)
	roots := server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	socket, _, err := websocket.Dial(t.Context(), server.URL+link.WebSocketPath,
		&websocket.DialOptions{HTTPClient: client, Subprotocols: []string{link.Subprotocol}})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.CloseNow()
	raw, err := wait.For(t, sockets.accepted, "a connection").SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	want := "reno"
	if slices.Contains(strings.Fields(string(text)), "bbr") {
		want = "bbr"
	}
	wait.Until(t, "the congestion control is "+want, func() bool { // it is set a moment after the answer
		var got string
		if err := raw.Control(func(fd uintptr) {
			got, err = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		}); err != nil {
			t.Fatal(err)
		}
		return err == nil && strings.TrimRight(got, "\x00") == want
	})
}
