// Package caddymodule is everything of Postern that knows Caddy: a thin shell,
// one module per file, around packages that do not.
//
// A request passes three handlers, an onion:
//
//	model_auth     checks the key, before a byte of the body is read   (auth.go)
//	model_dialect  reads and checks the body, renders the answer       (dialect.go)
//	model_route    deployment → scope → tunnel → one round trip        (route.go)
//
// What they share travels in one typed value, the exchange (exchange.go), in
// the request's context. model_route never writes to the client: it leaves the
// upstream's answer, or an error, for model_dialect to render.
//
// The model_gateway app (app.go) owns what outlives a configuration: the store
// and the tunnel listener, both in usage pools (pool.go), so that a reload
// drops neither a tunnel nor a running request.
// Beside the open store live the services on it (services.go): sign-in, the
// desk where devices wait to be paired, the activity of the last requests
// (activity.go), and what is remembered of requests that have ended
// (learner.go): how many tokens their prompts had, which is what counts of
// tokens are made from (counting.go), and responses that clients may refer to
// (keptresponses.go).
//
// Three more handlers stand beside the onion: model_console serves the web
// console (console.go), model_tunnel tells connectors that are to be paired
// where they dial (discovery.go), and model_base_url answers clients whose base
// URL lacks /v1 (baseurl.go).
//
// What happens to records and tunnels goes to Caddy's events app: it is found
// out in events_sources.go, handed over in events.go, and posted by the handler
// model_gateway_webhook (events_webhook.go).
package caddymodule
