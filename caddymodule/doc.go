// Package caddymodule is the Caddy modules of Postern, one a file, around packages
// that do not know Caddy.
//
// A request passes three handlers, which stand in one route in this order; another
// order is refused when a configuration is loaded (order.go):
//
//	model_auth     checks the key, before a byte of the body is read   (auth.go)
//	model_dialect  reads and checks the body, renders the answer       (dialect.go)
//	model_route    deployment → scope → tunnel → one round trip        (route.go)
//
// The request path itself is package serve. The app model_gateway (app.go) has the
// gateway of a configuration (package gateway): the store and the tunnel listener,
// both in usage pools (pool.go), outlive it.
//
// Three more handlers are independent of these: model_console serves the web
// console (console.go), model_tunnel answers connectors that are to be paired
// (discovery.go), and model_base_url answers clients whose base URL lacks /v1
// (baseurl.go). Events of records and tunnels (package events) go to Caddy's events
// app, and the handler model_gateway_webhook (webhook.go) posts them. The commands
// of `caddy gateway` are package cli.
package caddymodule
