package cli

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/postern-dev/postern/caddymodule/cli/up"
)

// TestForeignListener: another user listens on the usual port of the admin endpoint. No
// command sends it anything, or prints what it answers.
func TestForeignListener(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to listen as another user")
	}
	t.Setenv("CADDY_ADMIN", "")
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	usual := caddy.DefaultAdminListen
	t.Cleanup(func() { caddy.DefaultAdminListen = usual })
	const nobody = 65534
	for _, host := range []string{"127.0.0.1:0", "[::1]:0"} {
		var requests atomic.Int32
		serve := func(user int) *httptest.Server {
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				requests.Add(1)
				fmt.Fprint(w, `{"url":"https://evil.example"}`)
			}))
			server.Listener.Close()
			server.Listener = listenAs(t, user, host)
			server.Start()
			caddy.DefaultAdminListen = strings.TrimPrefix(server.URL, "http://")
			return server
		}
		foreign := serve(nobody)
		for _, args := range []string{"user add root", "setup-link", "key create --name x", "status"} {
			ran := runCommand(t, strings.Fields(args)...)
			if ran.exit != exitUsage || ran.out != "" ||
				!strings.Contains(ran.err, "--address localhost:") || !strings.Contains(ran.err, "belongs to the user nobody") {
				t.Errorf("%s: exit %d, stdout %q, stderr %q", args, ran.exit, ran.out, ran.err)
			}
		}
		if n := requests.Load(); n != 0 {
			t.Errorf("another user got %d requests", n)
		}
		runCommand(t, "setup-link", "--address", caddy.DefaultAdminListen)
		foreign.Close()
		own := serve(0)
		runCommand(t, "setup-link")
		own.Close()
		if n := requests.Load(); n != 2 {
			t.Errorf("%d requests with --address, and to a listener of this user", n)
		}
	}
}

// TestListenerIsReplaced: another user takes the port between the check and the connection.
func TestListenerIsReplaced(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to listen as another user")
	}
	t.Setenv("CADDY_ADMIN", "")
	const nobody = 65534
	for _, c := range []struct {
		name   string
		user   int
		closed bool // after the connection was accepted
		fails  bool
	}{
		{"root", 0, false, false},
		{"root, closed", 0, true, true},
		{"another user", nobody, false, true},
		{"another user, closed", nobody, true, true},
	} {
		l := listenAs(t, c.user, "127.0.0.1:0")
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		accepted, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if c.closed {
			l.Close()
		}
		if err := up.CheckListener(conn); (err != nil) != c.fails {
			t.Errorf("%s: %v", c.name, err)
		}
		conn.Close()
		accepted.Close()
		l.Close()
	}
}

// listenAs returns a listener that belongs to a user.
func listenAs(t *testing.T, user int, address string) net.Listener {
	t.Helper()
	runtime.LockOSThread() // which alone changes its user
	defer runtime.UnlockOSThread()
	if err := syscall.Setfsuid(user); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Setfsuid(0) }()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
