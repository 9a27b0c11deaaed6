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

	"github.com/postern-dev/postern/caddymodule/cli"
)

func init() {
	for _, module := range []caddy.Module{
		new(App), new(adminAPI), new(Auth), new(Dialect), new(Route), new(Tunnel), new(Fallback), new(Console), new(Webhook),
		new(Certificates),
	} {
		caddy.RegisterModule(module)
	}
	cli.Register(host())
	httpcaddyfile.RegisterGlobalOption("model_gateway", parseGlobalOption)
	httpcaddyfile.RegisterDirective("model_gateway", parseModelGateway)
	httpcaddyfile.RegisterDirectiveOrder("model_gateway", httpcaddyfile.Before, "reverse_proxy")
	httpcaddyfile.RegisterHandlerDirective("model_auth", parseHandler[Auth])
	httpcaddyfile.RegisterHandlerDirective("model_dialect", parseHandler[Dialect])
	httpcaddyfile.RegisterHandlerDirective("model_route", parseHandler[Route])
	httpcaddyfile.RegisterHandlerDirective("model_tunnel", parseHandler[Tunnel])
	httpcaddyfile.RegisterHandlerDirective("model_fallback", parseHandler[Fallback])
	httpcaddyfile.RegisterDirective("model_console", parseModelConsole)
	httpcaddyfile.RegisterDirectiveOrder("model_console", httpcaddyfile.Before, "reverse_proxy")
}

// parseGlobalOption reads the options of the app.
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

// UnmarshalCaddyfile reads
//
//	model_gateway {
//		listen  <address>       # UDP for connectors, default :7443
//		public  <host:port>     # what connectors dial
//		storage bolt [<path>]   # or etcd { … }, see Storage
//		edge { … }              # this gateway of a cluster, see Edge
//		max_memory <size>       # for requests and answers, default a quarter of the memory limit
//		key_metrics on|off      # ids of keys as labels of metrics, default off
//		connectors <folder>     # of the connectors to hand out
//	}
func (a *App) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return options{
		{"listen", once(text(&a.Listen))},
		{"public", once(text(&a.Public))},
		{"storage", once(func(d *caddyfile.Dispenser) error {
			a.Storage = new(Storage)
			return a.Storage.UnmarshalCaddyfile(d)
		})},
		{"edge", once(func(d *caddyfile.Dispenser) error {
			a.Edge = new(Edge)
			return a.Edge.UnmarshalCaddyfile(d)
		})},
		{"max_memory", once(size(&a.MaxMemory))},
		{"key_metrics", once(word(&a.KeyMetrics, on, off))},
		{"connectors", once(text(&a.Connectors))},
	}.unmarshal(d)
}

// parseModelGateway expands the short directive `model_gateway [<matcher>] { … }`,
// which has the options of the three handlers:
//
//	@model_gateway path /v1 /v1/*
//	route @model_gateway {
//		model_auth { … }
//		model_dialect { … }
//		model_route { … }
//	}
//	@model_tunnel path /.well-known/postern /.well-known/postern/*
//	route @model_tunnel {
//		model_tunnel
//	}
//	model_fallback { … }
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
	var auth Auth
	var dialect Dialect
	var route Route
	if err := slices.Concat(auth.options(), dialect.options(), route.options()).block(h.Dispenser); err != nil {
		return nil, err
	}
	return routesWithin(matcher,
		pathRoute(h, caddyhttp.MatchPath{"/v1", "/v1/*"}, &auth, &dialect, &route),
		pathRoute(h, caddyhttp.MatchPath{discoveryPath, discoveryPath + "/*"}, new(Tunnel)),
		pathRoute(h, nil, &Fallback{CORS: auth.CORS}),
	), nil
}

// parseModelConsole reads the directive of the console:
//
//	model_console [<matcher>]
//
// It serves matching requests for /console and the paths below it, and for / unless
// a later handler answers them.
func parseModelConsole(h httpcaddyfile.Helper) ([]httpcaddyfile.ConfigValue, error) {
	h.Next()
	matcher, err := h.ExtractMatcherSet()
	if err != nil {
		return nil, err
	}
	console, err := parseHandler[Console](h)
	if err != nil {
		return nil, err
	}
	return routesWithin(matcher, pathRoute(h, caddyhttp.MatchPath{"/", consolePath, consolePath + "/*"}, console)), nil
}

// pathRoute returns a route from paths, all paths if there are none, to handlers.
func pathRoute(h httpcaddyfile.Helper, paths caddyhttp.MatchPath,
	handlers ...caddyhttp.MiddlewareHandler) caddyhttp.Route {
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

// noOptions is embedded by handlers whose directive has no arguments or options.
type noOptions struct{}

// UnmarshalCaddyfile implements caddyfile.Unmarshaler.
func (noOptions) UnmarshalCaddyfile(d *caddyfile.Dispenser) error { return options{}.unmarshal(d) }

// options are the options of a directive.
type options []option

// option is an option of a directive. parse reads its arguments.
type option struct {
	name  string
	parse func(*caddyfile.Dispenser) error
}

// unmarshal reads a directive without arguments.
func (o options) unmarshal(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		return d.ArgErr()
	}
	return o.block(d)
}

// block reads the block of a directive.
func (o options) block(d *caddyfile.Dispenser) error {
	directive := d.Val()
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		i := slices.IndexFunc(o, func(o option) bool { return o.name == d.Val() })
		if i < 0 && len(o) == 0 {
			return d.Errf("%s has no options, got %q", directive, d.Val())
		} else if i < 0 {
			return d.Errf("unrecognized option %q; expected %s", d.Val(), o.names())
		}
		if err := o[i].parse(d); err != nil {
			return err
		}
	}
	return nil
}

// names returns the names of the options, for an error.
func (o options) names() string {
	var names strings.Builder
	names.WriteString(o[0].name)
	for i, other := range o[1:] {
		separator := ", "
		if i == len(o)-2 {
			separator = " or "
		}
		names.WriteString(separator + other.name)
	}
	return names.String()
}

// once rejects an option that is given twice.
func once(parse func(*caddyfile.Dispenser) error) func(*caddyfile.Dispenser) error {
	given := false
	return func(d *caddyfile.Dispenser) error {
		if given {
			return d.Errf("%s is given twice", d.Val())
		}
		given = true
		return parse(d)
	}
}

// arg reads the option's only argument with parse; what describes valid values.
func arg[T any](to *T, what string, parse func(text string) (T, bool)) func(*caddyfile.Dispenser) error {
	return func(d *caddyfile.Dispenser) error {
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
}

// duration reads a duration of at least 0. In JSON the zero value means the default,
// so 0 is stored as a negative duration.
func duration(to *caddy.Duration) func(*caddyfile.Dispenser) error {
	return arg(to, "a duration such as 10s or 1m", func(text string) (caddy.Duration, bool) {
		v, err := caddy.ParseDuration(text)
		if v == 0 {
			return caddy.Duration(-time.Nanosecond), err == nil
		}
		return caddy.Duration(v), err == nil && v > 0
	})
}

// count reads a number of at least 0. 0 is stored as -1.
func count(to *int) func(*caddyfile.Dispenser) error {
	return arg(to, "a number such as 64", func(text string) (int, bool) {
		v, err := strconv.ParseUint(text, 10, 31)
		if v == 0 {
			return -1, err == nil
		}
		return int(v), err == nil
	})
}

// size reads a size such as 32MiB.
func size(to *int64) func(*caddyfile.Dispenser) error {
	return arg(to, "a size such as 32MiB", func(text string) (int64, bool) {
		v, err := humanize.ParseBytes(text)
		return int64(v), err == nil && v > 0 && v <= math.MaxInt64
	})
}

// word reads one of words.
func word(to *string, words ...string) func(*caddyfile.Dispenser) error {
	return arg(to, "one of "+strings.Join(words, ", "), func(text string) (string, bool) {
		return text, slices.Contains(words, text)
	})
}

// texts reads one or more arguments, and adds them.
func texts(to *[]string) func(*caddyfile.Dispenser) error {
	return func(d *caddyfile.Dispenser) error {
		args := d.RemainingArgs()
		if len(args) == 0 {
			return d.ArgErr()
		}
		*to = append(*to, args...)
		return nil
	}
}

// text reads any text.
func text(to *string) func(*caddyfile.Dispenser) error {
	return arg(to, "", func(text string) (string, bool) { return text, true })
}
