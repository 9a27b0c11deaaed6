package caddymodule

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/dustin/go-humanize"
)

func init() {
	httpcaddyfile.RegisterGlobalOption("model_gateway", parseGlobalOption)
	httpcaddyfile.RegisterDirective("model_gateway", parseModelGateway)
	httpcaddyfile.RegisterDirectiveOrder("model_gateway", httpcaddyfile.Before, "reverse_proxy")
	httpcaddyfile.RegisterHandlerDirective("model_auth", parseHandler[Auth])
	httpcaddyfile.RegisterHandlerDirective("model_dialect", parseHandler[Dialect])
	httpcaddyfile.RegisterHandlerDirective("model_route", parseHandler[Route])
	httpcaddyfile.RegisterHandlerDirective("model_tunnel", parseHandler[Tunnel])
	httpcaddyfile.RegisterHandlerDirective("model_base_url", parseHandler[BaseURL])
	httpcaddyfile.RegisterDirective("model_console", parseModelConsole)
	httpcaddyfile.RegisterDirectiveOrder("model_console", httpcaddyfile.Before, "reverse_proxy")
}

// parseGlobalOption reads the app's options:
//
//	{
//		model_gateway {
//			listen  <address>       # UDP for connectors, default :7443
//			public  <host:port>     # what connectors dial
//			storage bolt <path>
//			max_memory <size>       # for requests and answers, default a quarter of the memory
//		}
//	}
func parseGlobalOption(d *caddyfile.Dispenser, existing any) (any, error) {
	if existing != nil {
		return nil, d.Err("model_gateway is given twice in the global options; merge the two blocks")
	}
	app := new(App)
	if err := app.UnmarshalCaddyfile(d); err != nil {
		return nil, err
	}
	return httpcaddyfile.App{Name: "model_gateway", Value: caddyconfig.JSON(app, nil)}, nil
}

// UnmarshalCaddyfile sets up the app from the tokens of the global option.
func (a *App) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		return d.ArgErr()
	}
	seen := map[string]bool{}
	for d.NextBlock(0) {
		option := d.Val()
		if seen[option] {
			return d.Errf("%s is given twice", option)
		}
		seen[option] = true
		switch option {
		case "listen":
			if !d.AllArgs(&a.Listen) {
				return d.ArgErr()
			}
		case "public":
			if !d.AllArgs(&a.Public) {
				return d.ArgErr()
			}
		case "storage":
			a.Storage = new(Storage)
			if !d.AllArgs(&a.Storage.Kind, &a.Storage.Path) {
				return d.Err("storage takes a kind and a path: storage bolt <path>")
			}
		case "max_memory":
			if err := parseSize(d, &a.MaxMemory); err != nil {
				return err
			}
		default:
			return d.Errf("unrecognized option %q; expected listen, public, storage or max_memory", option)
		}
	}
	return nil
}

// parseModelGateway expands the short directive:
//
//	model_gateway [<matcher>] {
//		max_body     <size>       # 32MiB
//		connect_wait <duration>   # 3s
//		queue_length <count>      # 64
//		queue_wait   <duration>   # 1m
//		keep_alive   <duration>   # 10s
//		response_store on|off|account # on
//	}
//
// is the same as
//
//	@model_gateway path /v1 /v1/*
//	route @model_gateway {
//		model_auth
//		model_dialect {
//			max_body   <size>
//			keep_alive <duration>
//			response_store on|off|account
//		}
//		model_route {
//			connect_wait <duration>
//			queue_length <count>
//			queue_wait   <duration>
//		}
//	}
//	@model_tunnel path /.well-known/postern /.well-known/postern/*
//	route @model_tunnel {
//		model_tunnel
//	}
//	@model_base_url path /chat/completions /messages /messages/* …
//	route @model_base_url {
//		model_base_url
//	}
func parseModelGateway(h httpcaddyfile.Helper) ([]httpcaddyfile.ConfigValue, error) {
	h.Next()
	matcher, err := h.ExtractMatcherSet()
	if err != nil {
		return nil, err
	}
	h.Next() // the directive's name again: ExtractMatcherSet rewinds
	if h.NextArg() {
		return nil, h.ArgErr()
	}
	var dialect Dialect
	var route Route
	for h.NextBlock(0) {
		switch option := h.Val(); option {
		case "max_body", "keep_alive", "response_store":
			err = dialect.parseOption(h.Dispenser)
		case "connect_wait", "queue_length", "queue_wait":
			err = route.parseOption(h.Dispenser)
		default:
			err = h.Errf("unrecognized option %q; expected max_body, connect_wait, keep_alive, queue_length, queue_wait or response_store", option)
		}
		if err != nil {
			return nil, err
		}
	}
	return routesWithin(matcher,
		pathRoute(h, caddyhttp.MatchPath{"/v1", "/v1/*"},
			caddyconfig.JSONModuleObject(new(Auth), "handler", "model_auth", nil),
			caddyconfig.JSONModuleObject(&dialect, "handler", "model_dialect", nil),
			caddyconfig.JSONModuleObject(&route, "handler", "model_route", nil)),
		pathRoute(h, caddyhttp.MatchPath{discoveryPath, discoveryPath + "/*"},
			caddyconfig.JSONModuleObject(new(Tunnel), "handler", "model_tunnel", nil)),
		pathRoute(h, unversionedPaths,
			caddyconfig.JSONModuleObject(new(BaseURL), "handler", "model_base_url", nil)),
	), nil
}

// parseModelConsole reads the directive of the console:
//
//	model_console [<matcher>]
//
// It serves matching requests for /console and the paths below it.
func parseModelConsole(h httpcaddyfile.Helper) ([]httpcaddyfile.ConfigValue, error) {
	h.Next()
	matcher, err := h.ExtractMatcherSet()
	if err != nil {
		return nil, err
	}
	var console Console
	if err := console.UnmarshalCaddyfile(h.Dispenser); err != nil {
		return nil, err
	}
	return routesWithin(matcher, pathRoute(h, caddyhttp.MatchPath{consolePath, consolePath + "/*"},
		caddyconfig.JSONModuleObject(&console, "handler", "model_console", nil))), nil
}

// pathRoute returns a route from paths to handlers.
func pathRoute(h httpcaddyfile.Helper, paths caddyhttp.MatchPath, handlers ...json.RawMessage) caddyhttp.Route {
	return caddyhttp.Route{MatcherSetsRaw: []caddy.ModuleMap{{"path": h.JSON(paths)}}, HandlersRaw: handlers}
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

// parseBlock reads `name { option … }` without arguments; parse reads each option.
func parseBlock(d *caddyfile.Dispenser, parse func(*caddyfile.Dispenser) error) error {
	d.Next()
	if d.NextArg() {
		return d.ArgErr()
	}
	for d.NextBlock(0) {
		if err := parse(d); err != nil {
			return err
		}
	}
	return nil
}

// noOptions is embedded by handlers whose directive has no arguments or options.
type noOptions struct{}

// UnmarshalCaddyfile implements caddyfile.Unmarshaler.
func (noOptions) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	name := d.Val()
	if d.NextArg() {
		return d.ArgErr()
	}
	for d.NextBlock(0) {
		return d.Errf("%s has no options, got %q", name, d.Val())
	}
	return nil
}

// parseArg reads the option's only argument with parse; what describes valid values.
func parseArg[T any](d *caddyfile.Dispenser, to *T, what string, parse func(text string) (T, bool)) error {
	option, text := d.Val(), ""
	if !d.AllArgs(&text) {
		return d.ArgErr()
	}
	v, ok := parse(text)
	if !ok {
		return d.Errf("%s: %q is not %s", option, text, what)
	}
	*to = v
	return nil
}

// parseDuration reads the option's only argument, a duration of at least 0. In JSON
// the zero value means the default, so 0 is stored as a negative duration.
func parseDuration(d *caddyfile.Dispenser, to *caddy.Duration) error {
	return parseArg(d, to, "a duration such as 10s or 1m", func(text string) (caddy.Duration, bool) {
		v, err := caddy.ParseDuration(text)
		if v == 0 {
			return disabled, err == nil
		}
		return caddy.Duration(v), err == nil && v > 0
	})
}

// parseCount reads the option's only argument, a number of at least 0. 0 is stored
// as -1.
func parseCount(d *caddyfile.Dispenser, to *int) error {
	return parseArg(d, to, "a number such as 64", func(text string) (int, bool) {
		v, err := strconv.ParseUint(text, 10, 31)
		if v == 0 {
			return -1, err == nil
		}
		return int(v), err == nil
	})
}

// parseWord reads the option's only argument, which must be one of words.
func parseWord(d *caddyfile.Dispenser, to *string, words ...string) error {
	return parseArg(d, to, "one of "+strings.Join(words, ", "), func(text string) (string, bool) {
		return text, slices.Contains(words, text)
	})
}

// disabled represents a duration of 0 from a Caddyfile.
const disabled = caddy.Duration(-time.Nanosecond)

// parseSize reads the option's only argument, a size such as 32MiB.
func parseSize(d *caddyfile.Dispenser, to *int64) error {
	return parseArg(d, to, "a size such as 32MiB", func(text string) (int64, bool) {
		v, err := humanize.ParseBytes(text)
		return int64(v), err == nil && v > 0 && v <= math.MaxInt64
	})
}
