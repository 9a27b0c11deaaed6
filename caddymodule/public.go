package caddymodule

import (
	"cmp"
	"net"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/postern-dev/postern/caddymodule/downloads"
	"github.com/postern-dev/postern/caddymodule/gateway"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/connector/link"
)

// endpoint returns the gateway's public addresses. Pins and certificates may change.
func (a *App) endpoint() manage.Endpoint {
	e := manage.Endpoint{Listen: a.listen.JoinHostPort(0), Public: a.Public, Warnings: a.warnings()}
	if hub, err := a.listener.Hub(); err == nil {
		e.Pin, e.NextPin = hub.Pin(), hub.NextPin()
		if addr := hub.Addr(); addr != nil {
			e.Listen = addr.String()
		}
	}
	api, console := a.sites()
	e.URL, e.Verified, e.Console = api.url, a.trust.verified(api.host, api.url), console.page()
	if e.Console != "" {
		e.Verified = e.Verified && a.trust.verified(console.host, console.url) // it serves programs
		e.Exposed = strings.HasPrefix(console.url, "http://") && !downloads.IsLoopback(console.host) &&
			console.host != gateway.HostOf(a.Public)
	}
	if e.Public == "" && api.host != "" {
		e.Public = net.JoinHostPort(api.host, strconv.Itoa(int(a.listen.StartPort)))
	}
	return e
}

// offer returns the connector that the console hands out for a system and architecture
// such as "linux/amd64", nil if there is none. It is called at each hello.
func (a *App) offer(platform string) *link.Offer {
	_, console := a.sites()
	archive, ok := a.gateway.Connectors.For(platform)
	if !ok || console.url == "" {
		return nil
	}
	return &link.Offer{Version: archive.Version, URL: console.page() + "connectors/" + archive.Name, Size: archive.Size,
		SHA256: archive.SHA256}
}

// site is the host name and base URL of a site; both are empty if there is none.
type site struct{ host, url string }

// page returns the address of the console on a site.
func (s site) page() string {
	if s.url == "" {
		return ""
	}
	return s.url + "/console/"
}

// site returns the site that has this handler. Of several, it is the site with the
// name that connectors dial.
func (a *App) site(handler string) site {
	app, err := a.ctx.AppIfConfigured("http")
	if err != nil {
		return site{}
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
	host, url := gateway.OnlySite(urls)
	if url == "" && named != "" {
		return site{name, named}
	}
	return site{host, url}
}

// siteOf returns how a server serves its host names. http_port and https_port are the
// ports behind a proxy or a port forward: clients use 80 and 443.
func siteOf(app *caddyhttp.App, server *caddyhttp.Server) gateway.Site {
	httpPort := uint(cmp.Or(app.HTTPPort, caddyhttp.DefaultHTTPPort))
	httpsPort := uint(cmp.Or(app.HTTPSPort, caddyhttp.DefaultHTTPSPort))
	port := httpsPort
	if len(server.Listen) > 0 {
		if na, err := caddy.ParseNetworkAddress(server.Listen[0]); err == nil {
			port = na.StartPort
		}
	}
	if len(server.TLSConnPolicies) == 0 || port == httpPort {
		return gateway.Site{Port: port, Usual: port == httpPort}
	}
	return gateway.Site{HTTPS: true, Port: port, Usual: port == httpsPort}
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
