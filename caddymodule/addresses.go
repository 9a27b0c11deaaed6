package caddymodule

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/postern-dev/postern/caddymodule/downloads"
	"github.com/postern-dev/postern/caddymodule/gateway"
	"github.com/postern-dev/postern/caddymodule/manage"
)

// defaultPort is the UDP port that connectors dial by default.
const defaultPort = 7443

// addresses are the addresses at which clients and connectors reach the gateway.
type addresses struct {
	listen   caddy.NetworkAddress // UDP, for connectors
	public   string               // host:port that connectors dial, "" if it follows from the site
	listener *gateway.Listener
	sites    func() sites
	trust    trust
}

// parse parses the options listen and public.
func (a *addresses) parse(listen, public string) (err error) {
	listen = cmp.Or(listen, ":"+strconv.Itoa(defaultPort))
	if a.listen, err = caddy.ParseNetworkAddressWithDefaults(listen, "udp", defaultPort); err != nil {
		return fmt.Errorf("parsing listen %q: %w", listen, err)
	}
	if a.listen.Network != "udp" || a.listen.PortRangeSize() != 1 {
		return fmt.Errorf("parsing listen %q: connectors dial one UDP port, such as :7443", listen)
	}
	if isNumber(a.listen.Host) { // a port without its colon
		return fmt.Errorf("parsing listen %q: for this port, write :%s", listen, a.listen.Host)
	}
	if public == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(public)
	if err != nil {
		host, port = public, strconv.Itoa(int(a.listen.StartPort))
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" || isNumber(host) {
		return fmt.Errorf("parsing public %q: it must be the host:port that connectors dial, such as gw.example.com:7443",
			public)
	}
	a.public = net.JoinHostPort(host, port)
	return nil
}

// isNumber reports whether a host is a decimal number.
func isNumber(host string) bool {
	_, err := strconv.ParseUint(host, 10, 64)
	return err == nil
}

// endpoint returns the public addresses. Pins and certificates may change.
func (a *addresses) endpoint() manage.Endpoint {
	s := a.sites()
	e := manage.Endpoint{
		Listen: a.listen.JoinHostPort(0), Public: a.public, Warnings: s.warnings, DataDir: caddy.AppDataDir(),
		URL: s.api.url, Console: s.console.page(),
	}
	if hub, err := a.listener.Hub(); err == nil {
		e.Pin = hub.Pin()
		if addr := hub.Addr(); addr != nil {
			e.Listen = addr.String()
		}
	}
	var root string
	e.Verified, root = a.trust.of(s.api, s.pki)
	if e.Console != "" {
		// The console serves programs, too.
		verified, consoleRoot := a.trust.of(s.console, s.pki)
		if e.Verified = e.Verified && verified; root == consoleRoot {
			e.Root = root
		}
		e.Exposed = strings.HasPrefix(s.console.url, "http://") && !downloads.IsLoopback(s.console.host) &&
			s.console.host != hostOf(a.public)
	}
	if e.Public == "" && s.api.host != "" {
		e.Public = net.JoinHostPort(s.api.host, strconv.Itoa(int(a.listen.StartPort)))
	}
	return e
}
