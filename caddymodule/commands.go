package caddymodule

import (
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/postern-dev/postern/caddymodule/cli/up"
	"github.com/postern-dev/postern/caddymodule/gateway"
	"github.com/postern-dev/postern/caddymodule/manage"
)

// commandHost returns what `caddy gateway up` needs from the modules.
func commandHost() up.Host {
	return up.Host{
		Port:    defaultPort,
		Console: consolePath,
		StoreConfig: func(config []byte) (gateway.StoreConfig, error) {
			var c struct {
				Apps struct {
					Gateway App `json:"model_gateway"`
				} `json:"apps"`
			}
			if len(config) > 0 {
				if err := json.Unmarshal(config, &c); err != nil {
					return gateway.StoreConfig{}, fmt.Errorf("reading model_gateway in the configuration: %w", err)
				}
			}
			return c.Apps.Gateway.Storage.config(c.Apps.Gateway.Edge)
		},
		KeepOpen: func(database string, logger *slog.Logger) (release func() error, err error) {
			s, release, err := acquireStore(gateway.StoreConfig{Path: database}, logger)
			if err != nil {
				return nil, err
			}
			s.Welcomed.Store(true)
			return release, nil
		},
		Gateway: func() (*manage.Service, error) {
			app, err := runningApp()
			if err != nil {
				return nil, err
			}
			return app.gateway.Manage()
		},
	}
}
