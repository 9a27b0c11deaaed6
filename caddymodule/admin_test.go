package caddymodule

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

// Without a gateway in the running configuration, the admin endpoint names the fix,
// in Caddy's own error type.
func TestAdminWithoutGateway(t *testing.T) {
	routes := new(adminAPI).Routes()
	if len(routes) != 1 || routes[0].Pattern != "/model_gateway/" {
		t.Fatalf("routes = %+v", routes)
	}
	err := routes[0].Handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/model_gateway/status", nil))
	var api caddy.APIError
	if !errors.As(err, &api) || api.HTTPStatus != http.StatusServiceUnavailable ||
		!strings.Contains(api.Error(), "caddy reload") {
		t.Errorf("error = %v", err)
	}
}

// While the process exits, no answer asks for a module that is configured.
func TestAdminWhileExiting(t *testing.T) {
	for _, reason := range []error{caddy.ErrNotConfigured, errors.New("the database is closed")} {
		var api caddy.APIError
		err := unavailable(reason, true)
		if !errors.As(err, &api) || api.HTTPStatus != http.StatusServiceUnavailable ||
			!strings.Contains(api.Error(), "shutting down") {
			t.Errorf("error = %v", err)
		}
	}
}
