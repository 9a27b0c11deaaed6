package caddymodule

import (
	"fmt"
	"log/slog"

	"github.com/caddyserver/caddy/v2"

	"github.com/postern-dev/postern/caddymodule/cli"
	"github.com/postern-dev/postern/caddymodule/cli/up"
)

func init() { cli.Register(host()) }

// host returns what `caddy gateway up` needs from the modules.
func host() up.Host {
	return up.Host{
		Port:    defaultPort,
		Console: consolePath,
		Paths:   append([]string{"/v1", "/v1/*", consolePath, consolePath + "/*", discoveryPath, discoveryPath + "/*"}, unversionedPaths...),
		Hold: func(database string, logger *slog.Logger) (release func() error, err error) {
			held, release, err := acquireStore(database, logger)
			if err != nil {
				return nil, err
			}
			held.Welcomed.Store(true)
			return release, nil
		},
		Gateway: func() (up.Gateway, error) {
			app, err := runningApp()
			if err != nil {
				return up.Gateway{}, err
			}
			service, err := app.gateway.Manage()
			if err != nil {
				return up.Gateway{}, err
			}
			hub, err := app.gateway.Listener.Hub()
			return up.Gateway{Manage: service, Tunnels: hub}, err
		},
	}
}

// runningApp finds the app of the running configuration.
func runningApp() (*App, error) {
	app, err := caddy.ActiveContext().AppIfConfigured("model_gateway")
	if err != nil {
		return nil, fmt.Errorf("finding the gateway: %w", err)
	}
	return app.(*App), nil
}
