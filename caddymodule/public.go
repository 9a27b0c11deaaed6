package caddymodule

import (
	"cmp"
	"net"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/postern-dev/postern/caddymodule/gateway"
	"github.com/postern-dev/postern/caddymodule/manage"
)

// endpoint returns the gateway's public addresses. It is computed at each use,
// which is rare, since all sites are provisioned by then.
func (a *App) endpoint() manage.Endpoint {
	e := manage.Endpoint{Listen: a.listen.JoinHostPort(0), Public: a.Public}
	if hub, err := a.listener.Hub(); err == nil {
		e.Pin = hub.Pin()
		if addr := hub.Addr(); addr != nil {
			e.Listen = addr.String()
		}
	}
	host, url := a.site("model_route")
	e.URL = url
	if name, console := a.site("model_console"); console != "" {
		e.Console = console + "/console/"
		e.Exposed = strings.HasPrefix(console, "http://") && !gateway.IsLoopback(name) && name != gateway.HostOf(a.Public)
	}
	if e.Public == "" && host != "" {
		e.Public = net.JoinHostPort(host, strconv.Itoa(int(a.listen.StartPort)))
	}
	return e
}

// site returns the host name and base URL of the site that has this handler. Of
// several, it is the site with the name that connectors dial. Both are empty if
// no site qualifies.
func (a *App) site(handler string) (host, url string) {
	app, err := a.ctx.AppIfConfigured("http")
	if err != nil {
		return "", ""
	}
	httpApp := app.(*caddyhttp.App)
	sites := map[string]gateway.Site{}
	for _, server := range httpApp.Servers {
		hosts := map[string]bool{}
		handlerHosts(server.Routes, handler, nil, hosts)
		for name := range hosts {
			s := siteOf(httpApp, server)
			if other, ok := sites[name]; !ok || s.Before(other) {
				sites[name] = s
			}
		}
	}
	urls := make(map[string]string, len(sites))
	for name, s := range sites {
		urls[name] = s.URL(name)
	}
	name := gateway.HostOf(a.Public)
	named := urls[name]
	if host, url = gateway.OnlySite(urls); url == "" && named != "" {
		return name, named
	}
	return host, url
}

// siteOf returns how a server serves its host names.
func siteOf(app *caddyhttp.App, server *caddyhttp.Server) gateway.Site {
	httpPort := uint(cmp.Or(app.HTTPPort, caddyhttp.DefaultHTTPPort))
	port := uint(cmp.Or(app.HTTPSPort, caddyhttp.DefaultHTTPSPort))
	if len(server.Listen) > 0 {
		if na, err := caddy.ParseNetworkAddress(server.Listen[0]); err == nil {
			port = na.StartPort
		}
	}
	if len(server.TLSConnPolicies) == 0 || port == httpPort {
		return gateway.Site{Port: port, Usual: port == caddyhttp.DefaultHTTPPort}
	}
	return gateway.Site{HTTPS: true, Port: port, Usual: port == caddyhttp.DefaultHTTPSPort}
}

// handlerHosts collects the host names of the routes that contain the named handler.
// within holds the hosts of the enclosing routes.
func handlerHosts(routes caddyhttp.RouteList, name string, within []string, hosts map[string]bool) {
	for _, route := range routes {
		of := within
		for _, set := range route.MatcherSets {
			for _, m := range set {
				if h, ok := m.(*caddyhttp.MatchHost); ok {
					of = *h
				}
			}
		}
		for _, handler := range route.Handlers {
			if sub, ok := handler.(*caddyhttp.Subroute); ok {
				handlerHosts(sub.Routes, name, of, hosts)
			}
			if caddy.GetModuleName(handler) == name {
				for _, host := range of {
					hosts[host] = true
				}
			}
		}
	}
}
