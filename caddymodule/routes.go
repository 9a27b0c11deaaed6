package caddymodule

import (
	"encoding/json"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// pathRoute returns a route from paths, all paths if there are none, to handlers.
func pathRoute(
	h httpcaddyfile.Helper, paths caddyhttp.MatchPath, handlers ...caddyhttp.MiddlewareHandler,
) caddyhttp.Route {
	var route caddyhttp.Route
	if len(paths) > 0 {
		route.MatcherSetsRaw = []caddy.ModuleMap{{"path": h.JSON(paths)}}
	}
	for _, handler := range handlers {
		route.HandlersRaw = append(route.HandlersRaw,
			caddyconfig.JSONModuleObject(handler, "handler", caddy.GetModuleName(handler), nil))
	}
	return route
}

// routesWithin returns the routes of a directive, restricted to requests that
// match its matcher.
func routesWithin(matcher caddy.ModuleMap, routes ...caddyhttp.Route) []httpcaddyfile.ConfigValue {
	if len(matcher) > 0 {
		routes = []caddyhttp.Route{{
			MatcherSetsRaw: []caddy.ModuleMap{matcher},
			HandlersRaw: []json.RawMessage{caddyconfig.JSONModuleObject(
				&caddyhttp.Subroute{Routes: routes}, "handler", "subroute", nil)},
		}}
	}
	values := make([]httpcaddyfile.ConfigValue, len(routes))
	for i, route := range routes {
		values[i] = httpcaddyfile.ConfigValue{Class: "route", Value: route}
	}
	return values
}

// handlerModule is a handler of this package. Instantiating parseHandler checks
// that it implements these interfaces.
type handlerModule[T any] interface {
	*T
	caddy.Provisioner
	caddyhttp.MiddlewareHandler
	caddyfile.Unmarshaler
}

// parseHandler reads the long-hand directive of one handler.
func parseHandler[T any, P handlerModule[T]](h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	m := P(new(T))
	return m, m.UnmarshalCaddyfile(h.Dispenser)
}
