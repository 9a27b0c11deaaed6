package caddymodule

import (
	"slices"

	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

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
	var auth Auth
	var dialect Dialect
	var route Route
	if err := slices.Concat(auth.options(), dialect.options(), route.options()).UnmarshalBlock(h.Dispenser); err != nil {
		return nil, err
	}
	return routesWithin(matcher,
		pathRoute(h, caddyhttp.MatchPath{"/v1", "/v1/*"}, &auth, &dialect, &route),
		pathRoute(h, caddyhttp.MatchPath{discoveryPath, discoveryPath + "/*"}, new(Tunnel)),
		pathRoute(h, nil, &Fallback{CORS: auth.CORS}),
	), nil
}
