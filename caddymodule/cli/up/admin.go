package up

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// socket is the Unix socket of the admin endpoint of `caddy gateway up`,
// next to its store; "" where there is none: on Windows, and where the path is
// too long for a socket. On a TCP port every local process could manage the
// gateway.
func socket() string {
	const longest = 100 // bytes; macOS allows 103
	path := filepath.Join(filepath.Dir(database()), "up.sock")
	if runtime.GOOS == "windows" || len(path) > longest {
		return ""
	}
	return path
}

// answersAt reports whether something listens on a Caddy network address.
func answersAt(address string) bool {
	addr, err := caddy.ParseNetworkAddress(address)
	if err != nil {
		return false
	}
	conn, err := net.DialTimeout(addr.Network, addr.JoinHostPort(0), time.Second)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// DefaultAdmin is where commands look for the admin endpoint if nothing says
// where it is: at Caddy's default, or else at the socket of `caddy gateway up`.
func DefaultAdmin() string {
	socket := socket()
	if os.Getenv("CADDY_ADMIN") == "" && socket != "" && !answersAt(caddy.DefaultAdminListen) && answersAt("unix/"+socket) {
		return "unix/" + socket
	}
	return caddy.DefaultAdminListen
}

// ownAdmin settles the admin endpoint of a run: its socket,
// unless $CADDY_ADMIN names another address or another run has the socket.
func ownAdmin() (string, error) {
	socket := socket()
	if os.Getenv("CADDY_ADMIN") != "" || socket == "" || answersAt("unix/"+socket) {
		return chooseAdmin(caddy.DefaultAdminListen)
	}
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		return "", fmt.Errorf("making the directory of the admin socket: %w", err)
	}
	return "unix/" + socket, nil
}

// Exposed reports whether each local process can use an admin endpoint.
func Exposed(address string) bool {
	addr, err := caddy.ParseNetworkAddress(address)
	return err == nil && !addr.IsUnixNetwork() && !addr.IsFdNetwork()
}
