package caddymodule

import (
	"maps"
	"net"
	"net/netip"
	"strconv"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/postern-dev/postern/caddymodule/manage"
)

// endpoint is how the gateway is reached from outside. It is computed at each
// use, when all sites are provisioned: that is cheap beside what it is for.
func (a *App) endpoint() manage.Endpoint {
	e := manage.Endpoint{Listen: a.listen.JoinHostPort(0), Public: a.Public}
	if hub, err := a.tunnel.val.get(); err == nil {
		e.Pin = hub.Pin()
		if addr := hub.Addr(); addr != nil {
			e.Listen = addr.String()
		}
	}
	host, url := a.site(isRoute)
	e.URL = url
	if _, console := a.site(isConsole); console != "" {
		e.Console = console + "/console/"
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
	urls := map[string]string{}
	for _, server := range httpApp.Servers {
		hosts := map[string]bool{}
		handlerHosts(server.Routes, has, nil, hosts)
		for name := range hosts {
			urls[name] = siteURL(httpApp, server, name)
		}
	}
	name, _, _ := net.SplitHostPort(a.Public)
	named := urls[name]
	if host, url = onlySite(urls); url == "" && named != "" {
		return name, named
	}
	return host, url
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

// siteURL is the base URL of a host name on a server, without /v1.
func siteURL(app *caddyhttp.App, server *caddyhttp.Server, host string) string {
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
	scheme, usual := "https", uint(caddyhttp.DefaultHTTPSPort)
	if len(server.TLSConnPolicies) == 0 || port == httpPort {
		scheme, usual = "http", uint(caddyhttp.DefaultHTTPPort)
	}
	if port == usual {
		return scheme + "://" + host
	}
	return scheme + "://" + net.JoinHostPort(host, strconv.Itoa(int(port)))
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
