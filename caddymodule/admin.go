package caddymodule

import (
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/caddyserver/caddy/v2"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/program"
)

// adminAPI serves the management API on Caddy's admin endpoint.
type adminAPI struct{}

// CaddyModule returns the module's registration.
func (adminAPI) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "admin.api.model_gateway", New: func() caddy.Module { return new(adminAPI) }}
}

// Routes implements caddy.AdminRouter.
func (a *adminAPI) Routes() []caddy.AdminRoute {
	return []caddy.AdminRoute{{Pattern: manage.AdminPrefix + "/", Handler: caddy.AdminHandlerFunc(a.serve)}}
}

// serve passes the request to the gateway of the running configuration. It looks
// up the app for each request: this module is provisioned before the apps and
// never cleaned up, so it must not keep a reference to one.
func (*adminAPI) serve(w http.ResponseWriter, r *http.Request) error {
	app, err := runningApp()
	if err != nil {
		return unavailable(err, caddy.Exiting())
	}
	service, err := app.gateway.Manage()
	if err != nil {
		return unavailable(fmt.Errorf("the model gateway is not running: %w", err), caddy.Exiting())
	}
	r = r.WithContext(manage.WithCaller(r.Context(),
		manage.Caller{Name: "admin endpoint", Operator: true, From: adminClient(r)}))
	handler := service.Handler(manage.AdminPrefix)
	return recovered(app.logger, w, func(w http.ResponseWriter) error { handler.ServeHTTP(w, r); return nil }, failJSON)
}

// adminClient returns the address of a request's client: that of its host, or "unix socket".
func adminClient(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return "unix socket"
	}
	return host
}

// unavailable returns the API error for a gateway that is not running because of
// err. When Caddy exits, it drops the configuration before it stops the admin
// endpoint.
func unavailable(err error, exiting bool) error {
	switch {
	case exiting:
		err = errors.New("the gateway is shutting down; try again after it has restarted")
	case errors.Is(err, caddy.ErrNotConfigured):
		err = errors.New(program.Named("the running configuration has no model gateway, or it is starting: try again, or " +
			"add `model_gateway` to a site of the Caddyfile and run `caddy reload`"))
	}
	return caddy.APIError{HTTPStatus: http.StatusServiceUnavailable, Err: err}
}

var _ caddy.AdminRouter = (*adminAPI)(nil)
