package caddymodule

import (
	"encoding/json"
	"errors"
	"fmt"

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
			if _, err := o.routes(server.Routes, passed{}); err != nil {
				return fmt.Errorf("server %s: %w", name, err)
			}
		}
	}
	return nil
}

// passed holds which handlers a request may have passed.
type passed struct{ auth, dialect bool }

// or merges two possible paths of a request.
func (p passed) or(q passed) passed { return passed{p.auth || q.auth, p.dialect || q.dialect} }

// handlerOrder walks the routes of one server.
type handlerOrder struct {
	named map[string]*caddyhttp.Route
	depth int // nesting of named routes
}

// routes walks routes in order. A request passes at most one route of a group, and
// none after a terminal route.
func (o *handlerOrder) routes(routes caddyhttp.RouteList, at passed) (passed, error) {
	groups := make(map[string]passed)
	for _, r := range routes {
		before := at
		if first, ok := groups[r.Group]; ok && r.Group != "" {
			before = first
		}
		groups[r.Group] = before
		after, err := o.handlers(r.HandlersRaw, before)
		if err != nil {
			return at, err
		}
		if !r.Terminal {
			at = at.or(after)
		}
	}
	return at, nil
}

// handlers walks the handlers of one route.
func (o *handlerOrder) handlers(handlers []json.RawMessage, at passed) (passed, error) {
	const order = "the three stand in one route, in the order model_auth, model_dialect, model_route"
	for _, raw := range handlers {
		var h struct {
			Handler string              `json:"handler"`
			Name    string              `json:"name"`   // of invoke
			Routes  caddyhttp.RouteList `json:"routes"` // of subroute
		}
		if json.Unmarshal(raw, &h) != nil {
			continue // Caddy reports it, or the handler cannot contain ours
		}
		var err error
		switch h.Handler {
		case "model_auth":
			at.auth = true
		case "model_dialect":
			if !at.auth {
				return at, errors.New("model_dialect has no model_auth before it: " + order)
			}
			at.dialect = true
		case "model_route":
			if !at.dialect {
				return at, errors.New("model_route has no model_dialect before it: " + order)
			}
		case "subroute":
			at, err = o.routes(h.Routes, at)
		case "invoke":
			const deepest = 10
			if r := o.named[h.Name]; r != nil && o.depth < deepest {
				o.depth++
				at, err = o.handlers(r.HandlersRaw, at)
				o.depth--
			}
		}
		if err != nil {
			return at, err
		}
	}
	return at, nil
}
