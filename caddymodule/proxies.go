package caddymodule

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// findWarnings returns what is wrong with the servers of the gateway's sites. All sites must be
// provisioned.
func (a *App) findWarnings() (found []string) {
	app, err := a.ctx.AppIfConfigured("http")
	if err != nil {
		return nil
	}
	servers := app.(*caddyhttp.App).Servers
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		server := servers[name]
		hosts := map[string]bool{}
		for _, handler := range []string{"model_auth", "model_console", "model_tunnel"} {
			handlerHosts(server.Routes, handler, []string{""}, hosts)
		}
		if len(hosts) > 0 && trustsProxies(server) && server.TrustedProxiesStrict == 0 {
			found = append(found, fmt.Sprintf("server %s has trusted_proxies without trusted_proxies_strict. "+
				"If a proxy appends to X-Forwarded-For, a client chooses its own address, "+
				"and passes allowed_ips of keys and limits of sign-ins. Add trusted_proxies_strict to `servers`", name))
		}
	}
	return found
}

// trustsProxies reports whether a server takes addresses of clients from proxies. Caddy
// drops the option when it has loaded it, and exports nothing else.
func trustsProxies(server *caddyhttp.Server) bool {
	source := reflect.ValueOf(server).Elem().FieldByName("trustedProxies")
	return server.TrustedProxiesUnix || source.IsValid() && !source.IsNil()
}
