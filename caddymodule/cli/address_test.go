package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The error for the address of a site names this mistake, not a missing gateway.
func TestAddressOfSite(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Server", "Caddy")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"error":{"message":"Unknown request URL"}}`)
	}))
	defer site.Close()
	address := site.Listener.Addr().String()
	if ran := runCommand(t, "status", "--address", address); ran.exit != 1 ||
		!strings.Contains(ran.err, address+" is the address of a site, not of Caddy's admin endpoint") {
		t.Errorf("exit %d, %s", ran.exit, ran.err)
	}
}
