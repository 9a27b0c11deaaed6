//go:build linux

package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
)

// Addresses that are the same in each lab.
const (
	RouterLAN = "192.168.7.1"
	HomeLAN   = "192.168.7.2"
)

// A Lab is a network with a gateway's side and a home's.
type Lab struct {
	Gateway, Router, Home *Namespace
	WAN                   *Wire // out: from the router to the gateway
	LAN                   *Wire // out: from home to the router

	// GatewayAddress and RouterAddress are those on the WAN.
	GatewayAddress, RouterAddress string

	net    string // of the WAN, its first three numbers
	device string // of the WAN in the gateway's namespace
}

// Missing returns an error with the requirements of a lab that this machine lacks. Packets of TCP can only be
// lost below the sockets.
func Missing() error {
	if os.Getuid() != 0 {
		return errors.New("root, for network namespaces")
	}
	for tool, from := range map[string]string{"ip": "iproute2", "nft": "nftables"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s, which is in Debian's package %s", tool, from)
		}
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		return errors.New("TUN devices, /dev/net/tun")
	}
	return nil
}

// Isolate gives a process a network of its own, for labs.
func Isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
}

// labs counts those of this process: they share the gateway's namespace.
var labs atomic.Int32

// New makes a lab, in a process of its own network: see [Isolate].
func New() (l *Lab, err error) {
	n := labs.Add(1)
	l = &Lab{net: fmt.Sprintf("10.%d.%d", 99+n/256, n%256), device: fmt.Sprintf("wan%d", n)}
	defer func() {
		if err != nil {
			l.Close()
		}
	}()
	l.GatewayAddress, l.RouterAddress = l.net+".1", l.net+".2"
	if l.Gateway, err = own(); err != nil {
		return l, err
	}
	for _, n := range []**Namespace{&l.Router, &l.Home} {
		if *n, err = newNamespace(); err != nil {
			return l, err
		}
	}
	if l.WAN, err = newWire(end{l.Router, "wan"}, end{l.Gateway, l.device}); err != nil {
		return l, err
	}
	if l.LAN, err = newWire(end{l.Home, "lan"}, end{l.Router, "lan"}); err != nil {
		return l, err
	}
	return l, errors.Join(
		l.Gateway.IP("link set lo up", "address add "+l.GatewayAddress+"/24 dev "+l.device, up(l.device)),
		l.Router.IP("address add "+l.RouterAddress+"/24 dev wan", up("wan"), "address add "+RouterLAN+"/24 dev lan",
			up("lan")),
		l.Home.IP("link set lo up", "address add "+HomeLAN+"/24 dev lan", up("lan"), "route add default via "+RouterLAN),
		l.route(),
	)
}

// up returns the command of ip(8) that switches a device on. Its default queue is short: a storm of handshakes
// would be lost before it reaches the line.
func up(device string) string { return "link set " + device + " txqueuelen 20000 up" }

// Close ends the lines. Processes in the namespaces keep running.
func (l *Lab) Close() {
	for _, w := range []*Wire{l.LAN, l.WAN} {
		if w != nil {
			w.close()
		}
	}
	for _, n := range []*Namespace{l.Home, l.Router, l.Gateway} {
		if n != nil {
			n.close()
		}
	}
}

// route configures the router, with a NAT that gives each flow a random port and admits only answers.
func (l *Lab) route() (err error) {
	l.Router.Do(func() { err = os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0) })
	if err != nil {
		return fmt.Errorf("making the router forward: %w", err)
	}
	return l.Router.Run("nft", "-f", "-", `
table ip box {
	chain nat {
		type nat hook postrouting priority srcnat
		oifname "wan" masquerade fully-random
	}
	chain entry {
		type filter hook input priority filter
		iifname "wan" drop
	}
	chain transit {
		type filter hook forward priority filter
		iifname "wan" ct state new drop
	}
}
`)
}

// Rebind makes the NAT forget its mappings, like a router that was restarted: inbound packets are lost, and
// the next outbound packet gets another port.
func (l *Lab) Rebind() (err error) {
	l.Router.Do(func() { err = flushConntrack() })
	return err
}

// Move moves home to its n-th other network, with another address of its own and of the router on the WAN,
// like a laptop that changes from the cable to a hot spot: it has the new network before it leaves the old
// one.
func (l *Lab) Move(n int) error {
	router, home := fmt.Sprintf("192.168.%d.1", 7+n), fmt.Sprintf("192.168.%d.2", 7+n)
	return errors.Join(
		l.Router.IP("address add "+router+"/24 dev lan"),
		l.Home.IP("address add "+home+"/24 dev lan", "route replace default via "+router+" src "+home,
			fmt.Sprintf("address del 192.168.%d.2/24 dev lan", 6+n)),
		l.Router.IP("address flush dev wan", fmt.Sprintf("address add %s.%d/24 dev wan", l.net, 2+n)),
		l.Rebind(),
	)
}

// Spread makes the NAT use many addresses, so that flows come from many addresses for the gateway.
func (l *Lab) Spread() error {
	return l.Router.Run("nft", "-f", "-", fmt.Sprintf(`
flush chain ip box nat
add rule ip box nat oifname "wan" snat to jhash udp sport mod 250 map { %s }
`, l.pool(250)))
}

// pool maps numbers to addresses, for nft.
func (l *Lab) pool(n int) string {
	var text strings.Builder
	for i := range n {
		text.WriteString(fmt.Sprintf("%d : %s.%d, ", i, l.net, i+3))
	}
	return text.String()
}
