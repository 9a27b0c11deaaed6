package up_test

import (
	"encoding/json"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	_ "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/postern-dev/postern/caddymodule"
	"github.com/postern-dev/postern/caddymodule/cli/up"
)

// The configuration is valid, and binds only loopback.
func TestUpConfiguration(t *testing.T) {
	database := filepath.Join(t.TempDir(), "with space", "up.db")
	adapted, err := up.Configuration("localhost:2019", database)
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Admin caddy.AdminConfig `json:"admin"`
		Apps  struct {
			Gateway caddymodule.App `json:"model_gateway"`
			HTTP    struct {
				Servers map[string]struct {
					Listen []string `json:"listen"`
				} `json:"servers"`
			} `json:"http"`
		} `json:"apps"`
	}
	if err := json.Unmarshal(adapted, &config); err != nil {
		t.Fatal(err)
	}
	gateway := &config.Apps.Gateway
	if gateway.Listen != "127.0.0.1:7443" || gateway.Public != "127.0.0.1:7443" || gateway.Storage == nil ||
		gateway.Storage.Path != database {
		t.Errorf("app = %s", adapted)
	}
	if config.Admin.Listen != "localhost:2019" || config.Admin.Config == nil || *config.Admin.Config.Persist {
		t.Errorf("admin = %+v", config.Admin)
	}
	if len(config.Apps.HTTP.Servers) != 1 {
		t.Fatalf("servers = %s", adapted)
	}
	for _, server := range config.Apps.HTTP.Servers {
		for _, listen := range server.Listen {
			addr, err := netip.ParseAddrPort(listen)
			if err != nil || !addr.Addr().IsLoopback() || addr.Port() != 8080 {
				t.Errorf("the server listens on %q", listen)
			}
		}
	}
}

// The endpoint is a socket for this user only.
func TestUpConfigurationOfASocket(t *testing.T) {
	config, err := up.Configuration("unix//run/up.sock", filepath.Join(t.TempDir(), "up.db"))
	if err != nil || !strings.Contains(string(config), `"listen":"unix//run/up.sock|0600"`) ||
		!strings.Contains(string(config), `"exclude":["admin"]`) { // its log calls the socket an open interface
		t.Errorf("%s, %v", config, err)
	}
}
