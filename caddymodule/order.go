package caddymodule

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// checkOrder rejects an http app with a model_dialect without a model_auth before it, or a
// model_route without a model_dialect before it. It returns the host names of the sites with a
// handler, by the handler's name. It must be called when the first of these handlers is provisioned:
// Caddy still keeps their routes as JSON then, including those of sites that are provisioned later.
func checkOrder(ctx caddy.Context) (hosts map[string]map[string]string, err error) {
	hosts = make(map[string]map[string]string)
	for _, module := range ctx.Modules() {
		httpApp, ok := module.(*caddyhttp.App)
		if !ok {
			continue
		}
		for name, server := range httpApp.Servers {
			o := handlerOrder{named: server.NamedRoutes, hosts: hosts}
			if _, err := o.routes(server.Routes, 0); err != nil {
				return nil, fmt.Errorf("server %s: %w", name, err)
			}
		}
	}
	return hosts, nil
}

// warnOfSites warns if the sites with these host names do not work together. A map is nil if no
// site has the handler. public is the host:port that connectors dial, "" if it is not configured.
func warnOfSites(logger *slog.Logger, api, console map[string]string, public string) {
	if api == nil && console != nil {
		logger.Warn("the console is without the API: add `model_gateway` to a site, such as that of `model_console`")
	}
	if api == nil || public != "" {
		return
	}
	sites := slices.Sorted(maps.Keys(api))
	if host, _ := onlySite(api); host == "" {
		logger.Warn("connectors cannot be paired, because the address that they dial is not known: "+
			"set `public <host:port>` in the global option `model_gateway`", "sites", sites)
	}
}

// ordered are the handlers that a request must pass in this order.
var ordered = [...]string{"model_auth", "model_dialect", "model_route"}

// handlerOrder walks the routes of one server.
type handlerOrder struct {
	named map[string]*caddyhttp.Route
	depth int // nesting of named routes

	within []string                     // host names of the present route
	hosts  map[string]map[string]string // of the sites with a handler, by its name; the values equal the keys
}

// setHosts sets the host names of a route that has a matcher for them. Before the server is provisioned, the
// matcher is JSON.
func (o *handlerOrder) setHosts(r caddyhttp.Route) {
	for _, set := range r.MatcherSetsRaw {
		var hosts []string
		if json.Unmarshal(set["host"], &hosts) == nil {
			o.within = hosts
		}
	}
	for _, set := range r.MatcherSets {
		for _, m := range set {
			if hosts, ok := m.(*caddyhttp.MatchHost); ok {
				o.within = *hosts
			}
		}
	}
}

// recordHosts records that the present route has a handler.
func (o *handlerOrder) recordHosts(handler string) {
	if o.hosts[handler] == nil {
		o.hosts[handler] = make(map[string]string)
	}
	for _, host := range o.within {
		o.hosts[handler][host] = host
	}
}

// routes walks routes in order. passed is how many of the ordered handlers a request
// may have passed before; routes returns how many it may have passed after. A request
// passes at most one route of a group, and none after a terminal route.
func (o *handlerOrder) routes(routes caddyhttp.RouteList, passed int) (int, error) {
	groups := make(map[string]int)
	for _, r := range routes {
		before := passed
		if first, ok := groups[r.Group]; ok && r.Group != "" {
			before = first
		}
		groups[r.Group] = before
		outer := o.within
		o.setHosts(r)
		after, err := o.handlers(r.HandlersRaw, before)
		o.within = outer
		if err != nil {
			return 0, err
		}
		if !r.Terminal {
			passed = max(passed, after)
		}
	}
	return passed, nil
}

// handlers walks the handlers of one route, as routes does.
func (o *handlerOrder) handlers(handlers []json.RawMessage, passed int) (int, error) {
	for _, raw := range handlers {
		var h struct {
			Handler string              `json:"handler"`
			Name    string              `json:"name"`   // of invoke
			Routes  caddyhttp.RouteList `json:"routes"` // of subroute
		}
		if json.Unmarshal(raw, &h) != nil {
			continue // Caddy reports it, or the handler cannot contain ours
		}
		o.recordHosts(h.Handler)
		if i := slices.Index(ordered[:], h.Handler); i > passed {
			return 0, fmt.Errorf("%s has no %s before it: the three stand in one route, in the order %s",
				ordered[i], ordered[i-1], strings.Join(ordered[:], ", "))
		} else if i == passed {
			passed++
		}
		var err error
		switch h.Handler {
		case "subroute":
			passed, err = o.routes(h.Routes, passed)
		case "invoke":
			const maxDepth = 10
			if r := o.named[h.Name]; r != nil && o.depth < maxDepth {
				o.depth++
				passed, err = o.handlers(r.HandlersRaw, passed)
				o.depth--
			}
		}
		if err != nil {
			return 0, err
		}
	}
	return passed, nil
}
