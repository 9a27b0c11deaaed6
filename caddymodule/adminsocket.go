package caddymodule

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// upSocket is the Unix socket of the admin endpoint of `caddy gateway up`,
// beside its store; "" where there is none: on Windows, and where the path is
// too long for a socket. On a TCP port every local process could manage the
// gateway.
func upSocket() string {
	const longest = 100 // bytes; macOS allows 103
	path := filepath.Join(filepath.Dir(upDatabase()), "up.sock")
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

// defaultAdmin is where commands look for the admin endpoint if nothing says
// where it is: at Caddy's default, or else at the socket of `caddy gateway up`.
func defaultAdmin() string {
	socket := upSocket()
	if os.Getenv("CADDY_ADMIN") == "" && socket != "" && !answersAt(caddy.DefaultAdminListen) && answersAt("unix/"+socket) {
		return "unix/" + socket
	}
	return caddy.DefaultAdminListen
}

// chooseUpAdmin settles the admin endpoint of `caddy gateway up`: its socket,
// unless $CADDY_ADMIN names another address or another run has the socket.
func chooseUpAdmin() (string, error) {
	socket := upSocket()
	if os.Getenv("CADDY_ADMIN") != "" || socket == "" || answersAt("unix/"+socket) {
		return chooseAdmin(caddy.DefaultAdminListen)
	}
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		return "", fmt.Errorf("making the directory of the admin socket: %w", err)
	}
	return "unix/" + socket, nil
}

// exposedAdmin reports whether each local process can use an admin endpoint.
func exposedAdmin(address string) bool {
	addr, err := caddy.ParseNetworkAddress(address)
	return err == nil && !addr.IsUnixNetwork() && !addr.IsFdNetwork()
}
