// Package caddymodule contains the Caddy modules of Postern, each in its own file, and
// their helpers. They wrap packages that do not depend on Caddy.
//
// A request passes three handlers in one route, in this order; a configuration with
// another order is rejected when it is loaded (order.go):
//
//	model_auth     checks the key before the body is read              (auth.go)
//	model_dialect  reads and checks the body, renders the answer       (dialect.go)
//	model_route    deployment → scope → tunnel → one round trip        (route.go)
//
// The request path itself is in package serve. The app model_gateway (app.go) owns
// the gateway of one configuration (package gateway). The store and the tunnel
// listener are in usage pools (app.go) and outlive a configuration.
//
// Three more handlers are independent of these: model_console serves the web
// console (console.go), model_tunnel serves connectors that are being paired
// (discovery.go), and model_fallback answers what no other handler of the site does
// (fallback.go). Events of records and tunnels (package events) are emitted through
// Caddy's events app, and the handler model_gateway_webhook (webhook.go) posts them.
// The storage model_gateway keeps Caddy's certificates in etcd (certificates.go).
// The `caddy gateway` commands are in package cli.
package caddymodule

import (
	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/postern-dev/postern/caddymodule/cli"
)

func init() {
	for _, module := range []caddy.Module{
		new(App), new(adminAPI), new(Auth), new(Dialect), new(Route), new(Tunnel), new(Fallback), new(Console), new(Webhook),
		new(Certificates),
	} {
		caddy.RegisterModule(module)
	}
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
	cli.Register(commandHost())
}
