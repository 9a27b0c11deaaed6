package up

import (
	"net"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

// `up` takes a Unix socket that only its user can use, and commands find it.
func TestUpSocket(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no sockets with modes")
	}
	directory, err := os.MkdirTemp("", "up") // t.TempDir is too long for a socket on some systems
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	t.Setenv("XDG_DATA_HOME", directory)
	t.Setenv("CADDY_ADMIN", "")
	address, err := ownAdmin()
	if err != nil || !strings.HasPrefix(address, "unix/") || Exposed(address) {
		t.Fatalf("%s, %v", address, err)
	}
	usual := caddy.DefaultAdminListen
	t.Cleanup(func() { caddy.DefaultAdminListen = usual })
	tcp, err := net.Listen("tcp", "127.0.0.1:0") // another Caddy
	must(t, err)
	defer tcp.Close()
	caddy.DefaultAdminListen = tcp.Addr().String()
	if got := DefaultAdmin(); got != caddy.DefaultAdminListen {
		t.Errorf("without a run commands use %s", got)
	}
	ln, err := net.Listen("unix", strings.TrimPrefix(address, "unix/"))
	must(t, err)
	defer ln.Close()
	if got := DefaultAdmin(); got != address {
		t.Errorf("during a run commands use %s", got)
	}
	if second, err := ownAdmin(); err != nil || second == address {
		t.Errorf("a second run takes %s, %v", second, err)
	}
	t.Setenv("CADDY_ADMIN", "localhost:2999")
	if got := DefaultAdmin(); got == address {
		t.Error("commands ignore $CADDY_ADMIN")
	}
}

func TestExposedAdmin(t *testing.T) {
	for address, want := range map[string]bool{
		"localhost:2019": true, "127.0.0.1:2019": true, ":2019": true, "unix//run/caddy/admin.sock": false,
		"unix//run/caddy/admin.sock|0600": false, "fd/3": false,
	} {
		if got := Exposed(address); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
}
