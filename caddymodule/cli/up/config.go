package up

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
)

// addresses are the addresses of a run, all on loopback.
type addresses struct {
	name   string   // host name for clients of the HTTP API
	hosts  []string // IP addresses of the HTTP API, the same port on all
	port   int      // of the HTTP API
	tunnel string   // UDP
	admin  string   // Caddy's admin endpoint
}

// The ports of localhost that are tried without --listen, in this order.
const (
	firstPort = 8080
	lastPort  = 8099
)

// url is the base of the HTTP API.
func (a addresses) url() string {
	return "http://" + net.JoinHostPort(a.name, strconv.Itoa(a.port))
}

// chooseAddresses chooses all addresses. It is called before anything starts, so that an
// error is the only output.
func chooseAddresses(listen string, udpPort int) (a addresses, err error) {
	if a, err = chooseHTTP(listen); err != nil {
		return a, err
	}
	if a.tunnel, err = chooseUDP(udpPort); err != nil {
		return a, err
	}
	a.admin, err = ownAdmin()
	return a, err
}

// chooseHTTP parses --listen: a port, or a loopback host and a port. "" is the first of the
// usual ports that is free. "localhost" means both loopback addresses: if another program
// listened on one of them, clients might reach it instead of the gateway.
func chooseHTTP(listen string) (a addresses, err error) {
	host, text, err := net.SplitHostPort(cmp.Or(listen, "localhost:"+strconv.Itoa(firstPort)))
	if err != nil {
		host, text = "", listen
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return a, Usagef("--listen %q is not an address such as localhost:8081", listen)
	}
	ips := []string{"127.0.0.1", "::1"}
	a.name = "localhost"
	if host != "" && host != "localhost" {
		ip, err := netip.ParseAddr(host)
		if err != nil || !ip.IsLoopback() {
			return a, Usagef("--listen %q is not a loopback address: `caddy gateway up` serves this machine only. "+
				"For a public gateway, write a Caddyfile and use `caddy run`", listen)
		}
		ips, a.name = []string{ip.String()}, ip.String()
	}
	a.port = int(port)
	for {
		err = a.listen(ips)
		if listen != "" || !errors.Is(err, syscall.EADDRINUSE) || a.port == lastPort {
			return a, err
		}
		a.port++
	}
}

// listen sets hosts to the IP addresses on which the port is free, and port to a free one if it is 0.
func (a *addresses) listen(ips []string) error {
	a.hosts = nil
	for _, ip := range ips {
		ln, err := net.Listen("tcp", net.JoinHostPort(ip, strconv.Itoa(a.port)))
		switch {
		case err == nil:
			a.port = ln.Addr().(*net.TCPAddr).Port
			_ = ln.Close()
			a.hosts = append(a.hosts, ip)
		case ip == "::1" && len(a.hosts) > 0 && !errors.Is(err, syscall.EADDRINUSE): // a machine without IPv6
		default:
			return fmt.Errorf("serving HTTP: %w", err)
		}
	}
	return nil
}

// chooseUDP prefers the usual port, so that tokens of other connectors on this
// machine remain valid in later runs.
func chooseUDP(preferred int) (string, error) {
	var last error
	for _, port := range []int{preferred, 0} {
		conn, err := net.ListenPacket("udp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			last = err
			continue
		}
		defer conn.Close()
		return conn.LocalAddr().String(), nil
	}
	return "", fmt.Errorf("finding a UDP port for the tunnel: %w", last)
}

// chooseAdmin prefers the usual address of the admin endpoint. Another Caddy may use
// it.
func chooseAdmin(preferred string) (string, error) {
	addr, err := caddy.ParseNetworkAddress(preferred)
	if err != nil || addr.IsUnixNetwork() || addr.IsFdNetwork() || addr.PortRangeSize() != 1 {
		return preferred, nil // Caddy itself reports what is wrong with it
	}
	ln, err := net.Listen("tcp", addr.JoinHostPort(0))
	if err == nil {
		return preferred, ln.Close()
	}
	if ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return "", fmt.Errorf("finding a port for the admin endpoint: %w", err)
	}
	return "localhost:" + strconv.Itoa(ln.Addr().(*net.TCPAddr).Port), ln.Close()
}

// caddyfile returns the configuration of the gateway. It excludes the log of the admin
// endpoint: Caddy calls a Unix socket an open interface there.
func (a addresses) caddyfile(database string) string {
	admin := a.admin
	if !Exposed(admin) {
		admin = "`" + admin + "|0600`"
	}
	sites := []string{"http://localhost:" + strconv.Itoa(a.port)}
	for _, ip := range a.hosts {
		sites = append(sites, "http://"+net.JoinHostPort(ip, strconv.Itoa(a.port)))
	}
	return fmt.Sprintf(`{
	admin %s
	persist_config off
	grace_period 2s
	servers {
		protocols h1
	}
	log {
		level WARN
		exclude admin
	}
	model_gateway {
		listen %s
		public %s
		storage bolt %s
	}
}

%s {
	bind %s
	model_gateway
	model_console
}
`, admin, a.tunnel, a.tunnel, "`"+database+"`", strings.Join(sites, ", "), strings.Join(a.hosts, " "))
}

// database returns the path of the store of `caddy gateway up`. A gateway that runs as a
// service uses another one.
func database() string {
	return filepath.Join(caddy.AppDataDir(), "model_gateway", "up.db")
}

// keyFile returns the path of the file with the key of `caddy gateway up`. The store, in
// the same folder, contains only the key's hash.
func keyFile(store string) string { return filepath.Join(filepath.Dir(store), "up.key") }

// adapt converts a Caddyfile to JSON. It ignores warnings: they are about formatting.
func adapt(text string) ([]byte, error) {
	adapter := caddyconfig.GetAdapter("caddyfile")
	if adapter == nil {
		return nil, errors.New("this program has no Caddyfile adapter; build Caddy with its standard modules")
	}
	config, _, err := adapter.Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	if err != nil {
		return nil, fmt.Errorf("adapting the configuration: %w", err)
	}
	return config, nil
}

// socket returns the path of the Unix socket of the admin endpoint of `caddy gateway up`,
// in the folder of the store. It is "" on Windows, and if the path would be too long. On a
// TCP port, every local process could manage the gateway.
func socket() string {
	const maxLength = 100 // bytes; macOS allows 103
	path := filepath.Join(filepath.Dir(database()), "up.sock")
	if runtime.GOOS == "windows" || len(path) > maxLength {
		return ""
	}
	return path
}

// AnswersAt reports whether something listens on a Caddy network address.
func AnswersAt(address string) bool {
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

// packageAdmin is the admin endpoint of a gateway that was installed from a package.
const packageAdmin = "/run/postern/admin.sock"

// DefaultAdmin returns the admin endpoint that commands use by default: $CADDY_ADMIN, the
// socket of a package or of `caddy gateway up`, or Caddy's default. Only root and the
// gateway's user can create the sockets, but every user can listen on a free port.
func DefaultAdmin() string {
	if os.Getenv("CADDY_ADMIN") != "" {
		return caddy.DefaultAdminListen
	}
	if AnswersAt("unix/" + packageAdmin) {
		return "unix/" + packageAdmin
	}
	if running := Running(); running != "" {
		return running
	}
	if _, missing := os.Stat(packageAdmin); missing == nil && !AnswersAt(caddy.DefaultAdminListen) {
		return "unix/" + packageAdmin // the user may not use it
	}
	return caddy.DefaultAdminListen
}

// Running returns the admin endpoint of the `caddy gateway up` that uses the same database,
// "" if its socket does not answer.
func Running() string {
	if socket := socket(); socket != "" && AnswersAt("unix/"+socket) {
		return "unix/" + socket
	}
	return ""
}

// ownAdmin returns the admin endpoint of a run: its socket, unless $CADDY_ADMIN is set or
// another run uses the socket.
func ownAdmin() (string, error) {
	socket := socket()
	if os.Getenv("CADDY_ADMIN") != "" || socket == "" || Running() != "" {
		return chooseAdmin(caddy.DefaultAdminListen)
	}
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		return "", fmt.Errorf("creating the directory of the admin socket: %w", err)
	}
	return "unix/" + socket, nil
}

// Exposed reports whether every local process can use an admin endpoint.
func Exposed(address string) bool {
	addr, err := caddy.ParseNetworkAddress(address)
	return err == nil && !addr.IsUnixNetwork() && !addr.IsFdNetwork()
}
