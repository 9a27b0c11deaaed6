package caddymodule

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/caddyserver/caddy/v2"

	"github.com/postern-dev/postern/caddymodule/manage"
)

func init() {
	caddy.RegisterModule(adminAPI{})
}

// adminPrefix is where Caddy's admin endpoint serves the management API.
const adminPrefix = "/model_gateway"

// adminAPI serves the management API on Caddy's admin endpoint.
type adminAPI struct{}

// CaddyModule returns the module's registration.
func (adminAPI) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "admin.api.model_gateway",
		New: func() caddy.Module { return new(adminAPI) },
	}
}

// Routes returns the one route of the management API.
func (a *adminAPI) Routes() []caddy.AdminRoute {
	return []caddy.AdminRoute{{Pattern: adminPrefix + "/", Handler: caddy.AdminHandlerFunc(a.serve)}}
}

// serve passes the request to the gateway of the running configuration. It is
// looked up each time: this module is provisioned before the apps and never
// cleaned up, so that it must hold on to none of them.
func (*adminAPI) serve(w http.ResponseWriter, r *http.Request) error {
	app, err := caddy.ActiveContext().AppIfConfigured("model_gateway")
	if errors.Is(err, caddy.ErrNotConfigured) {
		return caddy.APIError{
			HTTPStatus: http.StatusServiceUnavailable,
			Err:        errors.New("the running configuration has no model gateway; add `model_gateway` to a site of the Caddyfile and run `caddy reload`"),
		}
	}
	if err != nil {
		return caddy.APIError{HTTPStatus: http.StatusServiceUnavailable, Err: err}
	}
	service, err := app.(*App).Manage()
	if err != nil {
		return caddy.APIError{HTTPStatus: http.StatusServiceUnavailable, Err: fmt.Errorf("the model gateway is not running: %w", err)}
	}
	r = r.WithContext(manage.WithCaller(r.Context(), operator("admin endpoint")))
	service.Handler(adminPrefix).ServeHTTP(w, r)
	return nil
}

// Interface guards.
var (
	_ caddy.Module      = (*adminAPI)(nil)
	_ caddy.AdminRouter = (*adminAPI)(nil)
)
