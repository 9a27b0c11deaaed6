// Package caddymodule contains the Caddy modules of Postern. They wrap packages that do not depend on Caddy.
// A module has a file with its options, their defaults and its handler:
//
//	model_auth             checks the key before the body is read           model_auth.go
//	model_dialect          reads and checks the body, renders the answer    model_dialect.go
//	model_route            deployment → scope → tunnel → one round trip     model_route.go
//	model_tunnel           pairs connectors, accepts WebSockets             model_tunnel.go
//	model_console          the web console                                  model_console.go
//	model_fallback         requests that no other handler of a site answers model_fallback.go
//	model_gateway          the app: the gateway of one configuration        app.go, storage.go, edge.go
//	model_gateway          the management API at the admin endpoint         admin.go
//	model_gateway          Caddy's certificates in etcd                     certificates.go
//	model_gateway_webhook  posts events                                     webhook.go
//
// A request passes the first three in one route, in this order. A configuration with another order is
// rejected when it is loaded (order.go). The request path itself is in package serve. The directive
// model_gateway (model_gateway.go) expands to handlers. The store and the tunnel listener are in usage
// pools (pool.go) and outlive a configuration. The `caddy gateway` commands are in package cli.
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
