package caddymodule

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strconv"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddypki"
)

// consolePath is the path of the console.
const consolePath = "/console"

// sites are the sites of a configuration that have the gateway's handlers.
type sites struct {
	api, console site
	pki          *caddypki.PKI // nil: no site has a certificate of Caddy's own authority
	warnings     []string      // about their servers
}

// site is the host name and base URL of a site; both are empty if there is none.
type site struct{ host, url string }

// page returns the address of the console on a site.
func (s site) page() string {
	if s.url == "" {
		return ""
	}
	return s.url + consolePath + "/"
}

// findSites finds the sites of a configuration, which must be provisioned. public is the host:port that
// connectors dial, "" if it is not configured.
func findSites(ctx caddy.Context, public string) sites {
	loaded, err := ctx.AppIfConfigured("http")
	if err != nil {
		return sites{}
	}
	app := loaded.(*caddyhttp.App)
	pki, _ := ctx.AppIfConfigured("pki") // issuers may have loaded it
	own, _ := pki.(*caddypki.PKI)
	return sites{
		pki: own,
		api: findSite(app, "model_route", public), console: findSite(app, "model_console", public),
		warnings: proxyWarnings(app),
	}
}

// findSite returns the site with this handler. Of several, it returns the one whose name connectors dial.
func findSite(app *caddyhttp.App, handler, public string) site {
	ports := map[string]sitePort{}
	for _, server := range app.Servers {
		hosts := map[string]bool{}
		handlerHosts(server.Routes, handler, nil, hosts)
		for name := range hosts {
			p := portOf(app, server)
			if other, ok := ports[name]; !ok || p.https && !other.https || p.https == other.https && p.number < other.number {
				ports[name] = p // HTTPS before HTTP, then the lower port
			}
		}
	}
	urls := make(map[string]string, len(ports))
	for name, p := range ports {
		urls[name] = p.url(name)
	}
	name := hostOf(public)
	named := urls[name]
	host, url := onlySite(urls)
	if url == "" && named != "" {
		return site{name, named}
	}
	return site{host, url}
}

// hostOf returns the host of a host:port, "" if it is invalid.
func hostOf(hostport string) string {
	host, _, _ := net.SplitHostPort(hostport)
	return host
}

// onlySite returns the only host and its URL, "" if there are several. The names of the loopback
// interface count as one. It changes urls.
func onlySite(urls map[string]string) (host, url string) {
	if url, ok := urls["localhost"]; ok {
		maps.DeleteFunc(urls, func(name, _ string) bool {
			ip, err := netip.ParseAddr(name)
			return err == nil && ip.IsLoopback()
		})
		if len(urls) == 1 {
			return "localhost", url
		}
	}
	if len(urls) != 1 {
		return "", ""
	}
	for host, url = range urls {
	}
	return host, url
}

// handlerHosts collects the host names of the routes that contain the named handler. within are those of the
// enclosing routes.
func handlerHosts(routes caddyhttp.RouteList, name string, within []string, hosts map[string]bool) {
	for _, route := range routes {
		names := within
		for _, set := range route.MatcherSets {
			for _, m := range set {
				if h, ok := m.(*caddyhttp.MatchHost); ok {
					names = *h
				}
			}
		}
		for _, handler := range route.Handlers {
			if sub, ok := handler.(*caddyhttp.Subroute); ok {
				handlerHosts(sub.Routes, name, names, hosts)
			}
			if caddy.GetModuleName(handler) == name {
				for _, host := range names {
					hosts[host] = true
				}
			}
		}
	}
}

// sitePort is the port at which clients reach a site.
type sitePort struct {
	https  bool
	number uint
	usual  bool // clients reach it on the scheme's default port
}

// portOf returns the port of a server's sites. http_port and https_port are the ports behind a proxy or a
// port forward: clients use 80 and 443.
func portOf(app *caddyhttp.App, server *caddyhttp.Server) sitePort {
	httpPort := uint(cmp.Or(app.HTTPPort, caddyhttp.DefaultHTTPPort))
	httpsPort := uint(cmp.Or(app.HTTPSPort, caddyhttp.DefaultHTTPSPort))
	port := httpsPort
	if len(server.Listen) > 0 {
		if na, err := caddy.ParseNetworkAddress(server.Listen[0]); err == nil {
			port = na.StartPort
		}
	}
	if len(server.TLSConnPolicies) == 0 || port == httpPort {
		return sitePort{number: port, usual: port == httpPort}
	}
	return sitePort{https: true, number: port, usual: port == httpsPort}
}

// url returns the base URL of a host name, without /v1.
func (p sitePort) url(host string) string {
	scheme := "http"
	if p.https {
		scheme = "https"
	}
	if p.usual {
		return scheme + "://" + host
	}
	return scheme + "://" + net.JoinHostPort(host, strconv.Itoa(int(p.number)))
}

// proxyWarnings returns warnings about the gateway's servers that let clients choose their addresses, or whose port is
// for a proxy that they do not seem to have.
func proxyWarnings(app *caddyhttp.App) (warnings []string) {
	for _, name := range slices.Sorted(maps.Keys(app.Servers)) {
		server := app.Servers[name]
		hosts := map[string]bool{}
		for _, handler := range []string{"model_auth", "model_console", "model_tunnel"} {
			handlerHosts(server.Routes, handler, []string{""}, hosts)
		}
		if len(hosts) > 0 && trustsProxies(server) && server.TrustedProxiesStrict == 0 {
			warnings = append(warnings, fmt.Sprintf("server %s has trusted_proxies without trusted_proxies_strict. "+
				"If a proxy appends to X-Forwarded-For, a client chooses its own address, "+
				"and passes allowed_ips of keys and limits of sign-ins. Add trusted_proxies_strict to `servers`", name))
		}
		p, proxied := portOf(app, server), trustsProxies(server) || isSet(server, "listenerWrappers")
		if len(hosts) > 0 && p.https && p.usual && p.number != caddyhttp.DefaultHTTPSPort && !proxied {
			warnings = append(warnings, fmt.Sprintf("server %s listens on port %d because of https_port, so links and commands "+
				"are without a port: a proxy or a router must forward port 443. If clients connect to %[2]d, remove https_port, "+
				"and write the port into the site's address, like https://gw.example.com:%[2]d", name, p.number))
		}
	}
	return warnings
}

// trustsProxies reports whether a server takes addresses of clients from proxies. Caddy clears the
// option after loading it, and does not export the result.
func trustsProxies(server *caddyhttp.Server) bool {
	return server.TrustedProxiesUnix || isSet(server, "trustedProxies")
}

// isSet reports whether a field of a struct exists, with any type, and is not zero.
func isSet(of any, field string) bool {
	value := reflect.ValueOf(of).Elem().FieldByName(field)
	return value.IsValid() && !value.IsZero()
}
