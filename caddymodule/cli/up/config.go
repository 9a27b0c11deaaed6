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

// errPortTaken marks an HTTP port that another program uses.
var errPortTaken = errors.New("the port is taken")

// chooseAddresses chooses all addresses. It is called before anything starts, so that an
// error is the only output.
func chooseAddresses(listen string, udpPort int) (addresses, error) {
	a, err := chooseHTTP(listen)
	for port := firstPort; listen == "" && errors.Is(err, errPortTaken) && port < lastPort; port++ {
		a, err = chooseHTTP(strconv.Itoa(port + 1))
	}
	if err != nil {
		return addresses{}, err
	}
	if a.tunnel, err = chooseUDP(udpPort); err != nil {
		return addresses{}, err
	}
	a.admin, err = ownAdmin()
	return a, err
}

// chooseHTTP parses --listen: a port, or a loopback host and a port. "" is the first of
// the usual ports. "localhost" means both loopback addresses: if another program listened
// on one of them, clients might reach it instead of the gateway.
func chooseHTTP(listen string) (a addresses, err error) {
	host, port, err := net.SplitHostPort(cmp.Or(listen, "localhost:"+strconv.Itoa(firstPort)))
	if err != nil {
		host, port = "", listen
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return a, Usagef("--listen %q is not an address such as localhost:8081", listen)
	}
	candidates := []string{"127.0.0.1", "::1"}
	a.name = "localhost"
	if host != "" && host != "localhost" {
		ip, err := netip.ParseAddr(host)
		if err != nil || !ip.IsLoopback() {
			return a, Usagef("--listen %q is not a loopback address: `caddy gateway up` serves this machine only. "+
				"For a public gateway, write a Caddyfile and use `caddy run`", listen)
		}
		candidates, a.name = []string{ip.String()}, ip.String()
	}
	a.port = int(n)
	for _, ip := range candidates {
		ln, err := net.Listen("tcp", net.JoinHostPort(ip, strconv.Itoa(a.port)))
		switch {
		case err == nil:
			a.port = ln.Addr().(*net.TCPAddr).Port
			_ = ln.Close()
			a.hosts = append(a.hosts, ip)
		case errors.Is(err, syscall.EADDRINUSE):
			return a, fmt.Errorf("listening on %s: %w", net.JoinHostPort(ip, strconv.Itoa(a.port)), errPortTaken)
		case ip == "::1" && len(a.hosts) > 0: // a machine without IPv6
		default:
			return a, fmt.Errorf("listening on %s: %w", net.JoinHostPort(ip, strconv.Itoa(a.port)), err)
		}
	}
	return a, nil
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
// service has another one.
func database() string {
	return filepath.Join(caddy.AppDataDir(), "model_gateway", "up.db")
}

// keyFile returns the path of the file with the key of `caddy gateway up`. The store, in
// the same folder, has only the key's hash.
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

// packageAdmin is the admin endpoint of a gateway that was installed from a package.
const packageAdmin = "/run/postern/admin.sock"

// DefaultAdmin returns the admin endpoint that commands use by default: $CADDY_ADMIN, the
// socket of a package or of `caddy gateway up`, or Caddy's default. Only root and the
// gateway's user can create the sockets, but every user can listen on a free port, and would
// receive passwords there. DefaultAdmin fails if another user listens on the port. Only Linux
// reports the user.
func DefaultAdmin() (string, error) {
	if os.Getenv("CADDY_ADMIN") != "" {
		return caddy.DefaultAdminListen, nil
	}
	if answersAt("unix/" + packageAdmin) {
		return "unix/" + packageAdmin, nil
	}
	if running := Running(); running != "" {
		return running, nil
	}
	addr, err := caddy.ParseNetworkAddress(caddy.DefaultAdminListen)
	if err == nil {
		err = checkListeners(addr.StartPort, false)
	}
	if err != nil || !answersAt(caddy.DefaultAdminListen) {
		if _, missing := os.Stat(packageAdmin); missing == nil { // the user may not use it
			return "unix/" + packageAdmin, nil
		}
	}
	return caddy.DefaultAdminListen, err
}

// CheckListener checks who listens at the other end of a connection to the endpoint of
// DefaultAdmin: another user may have begun to listen there since DefaultAdmin returned.
func CheckListener(conn net.Conn) error {
	addr, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok || os.Getenv("CADDY_ADMIN") != "" {
		return nil
	}
	return checkListeners(uint(addr.Port), true)
}

// Running returns the admin endpoint of the `caddy gateway up` that uses the same database,
// "" if its socket does not answer.
func Running() string {
	if socket := socket(); socket != "" && answersAt("unix/"+socket) {
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
