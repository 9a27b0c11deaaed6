package caddymodule

import (
	"maps"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/postern-dev/postern/caddymodule/manage"
)

// endpoint is how the gateway is reached from outside. It is computed at each
// use, when all sites are provisioned: that is cheap beside what it is for.
func (a *App) endpoint() manage.Endpoint {
	e := manage.Endpoint{Listen: a.listen.JoinHostPort(0), Public: a.Public}
	if hub, err := a.listener.val.Hub(); err == nil {
		e.Pin = hub.Pin()
		if addr := hub.Addr(); addr != nil {
			e.Listen = addr.String()
		}
	}
	host, url := a.site(isRoute)
	e.URL = url
	if name, console := a.site(isConsole); console != "" {
		e.Console = console + "/console/"
		e.Exposed = strings.HasPrefix(console, "http://") && !isLoopback(name) && name != hostOf(a.Public)
	}
	if e.Public == "" && host != "" {
		e.Public = net.JoinHostPort(host, strconv.Itoa(int(a.listen.StartPort)))
	}
	return e
}

// isRoute and isConsole tell handlers by which a site is found.
func isRoute(h caddyhttp.MiddlewareHandler) bool   { _, ok := h.(*Route); return ok }
func isConsole(h caddyhttp.MiddlewareHandler) bool { _, ok := h.(*Console); return ok }

// site finds the site that has a handler: its host name and base URL. Of several
// it is the one with the name that connectors dial; both are empty if none is.
func (a *App) site(has func(caddyhttp.MiddlewareHandler) bool) (host, url string) {
	app, err := a.ctx.AppIfConfigured("http")
	if err != nil {
		return "", ""
	}
	httpApp := app.(*caddyhttp.App)
	sites := map[string]site{}
	for _, server := range httpApp.Servers {
		hosts := map[string]bool{}
		handlerHosts(server.Routes, has, nil, hosts)
		for name := range hosts {
			s := siteOf(httpApp, server)
			if other, ok := sites[name]; !ok || s.before(other) {
				sites[name] = s
			}
		}
	}
	urls := make(map[string]string, len(sites))
	for name, s := range sites {
		urls[name] = s.url(name)
	}
	name := hostOf(a.Public)
	named := urls[name]
	if host, url = onlySite(urls); url == "" && named != "" {
		return name, named
	}
	return host, url
}

// hostOf is the host of a host:port, "" if there is none.
func hostOf(hostport string) string {
	host, _, _ := net.SplitHostPort(hostport)
	return host
}

// isLoopback reports whether a name or an address is this machine's.
func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil && ip.IsLoopback()
}

// onlySite returns the one host and its URL; the names of the loopback
// interface count as one.
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

// site is how a host name is served.
type site struct {
	https bool
	port  uint
	usual bool // the port is the scheme's
}

// before reports whether a site is to be named rather than another of the same
// host: HTTPS before HTTP, then the lower port.
func (s site) before(other site) bool {
	if s.https != other.https {
		return s.https
	}
	return s.port < other.port
}

// url is the base URL of a host name, without /v1.
func (s site) url(host string) string {
	scheme := "http"
	if s.https {
		scheme = "https"
	}
	if s.usual {
		return scheme + "://" + host
	}
	return scheme + "://" + net.JoinHostPort(host, strconv.Itoa(int(s.port)))
}

// siteOf is how a server serves its host names.
func siteOf(app *caddyhttp.App, server *caddyhttp.Server) site {
	httpPort, httpsPort := uint(app.HTTPPort), uint(app.HTTPSPort)
	if httpPort == 0 {
		httpPort = caddyhttp.DefaultHTTPPort
	}
	if httpsPort == 0 {
		httpsPort = caddyhttp.DefaultHTTPSPort
	}
	port := httpsPort
	if len(server.Listen) > 0 {
		if na, err := caddy.ParseNetworkAddress(server.Listen[0]); err == nil {
			port = na.StartPort
		}
	}
	if len(server.TLSConnPolicies) == 0 || port == httpPort {
		return site{false, port, port == caddyhttp.DefaultHTTPPort}
	}
	return site{true, port, port == caddyhttp.DefaultHTTPSPort}
}

// handlerHosts collects the host names of the routes that hold a handler.
// within is what the enclosing routes' host matchers say.
func handlerHosts(routes caddyhttp.RouteList, has func(caddyhttp.MiddlewareHandler) bool, within []string, hosts map[string]bool) {
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
				handlerHosts(sub.Routes, has, names, hosts)
			}
			if has(handler) {
				for _, name := range names {
					hosts[name] = true
				}
			}
		}
	}
}
