package caddymodule

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// checkOrder rejects an http app with a model_dialect that has no model_auth before
// it, or a model_route that has no model_dialect before it. It is called when the
// first of these handlers is provisioned: Caddy still has their routes as JSON then,
// including those of sites that are provisioned later.
func (a *App) checkOrder(ctx caddy.Context) error {
	if a.ordered {
		return nil
	}
	a.ordered = true
	for _, module := range ctx.Modules() {
		httpApp, ok := module.(*caddyhttp.App)
		if !ok {
			continue
		}
		for name, server := range httpApp.Servers {
			o := handlerOrder{named: server.NamedRoutes}
			if _, err := o.routes(server.Routes, 0); err != nil {
				return fmt.Errorf("server %s: %w", name, err)
			}
		}
	}
	return nil
}

// ordered are the handlers that a request must pass in this order.
var ordered = [...]string{"model_auth", "model_dialect", "model_route"}

// handlerOrder walks the routes of one server.
type handlerOrder struct {
	named map[string]*caddyhttp.Route
	depth int // nesting of named routes
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
		after, err := o.handlers(r.HandlersRaw, before)
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
			const deepest = 10
			if r := o.named[h.Name]; r != nil && o.depth < deepest {
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
