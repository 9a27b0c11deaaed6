package caddymodule

import (
	"path/filepath"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

// A configuration emits nothing before all apps have started: until then the
// events app must not be used.
func TestConfigurationsEnterWhenStarted(t *testing.T) {
	app := provision(t, gatewayFile(freeUDP(t), "localhost:7443", filepath.Join(t.TempDir(), "gateway.db")))
	start(t, app)
	open, err := app.store.Get()
	if err != nil {
		t.Fatal(err)
	}
	expect := func(when string, want int) {
		t.Helper()
		if n := open.Events.Emitters(); n != want {
			t.Errorf("%s: %d configurations emit, want %d", when, n, want)
		}
	}
	expect("before all apps have started", 0)
	emit := func(name string) { app.events.Emit(caddy.Context{Context: t.Context()}, name, nil) }
	emit("started")
	expect("started", 1)
	emit("stopping")
	expect("stopping", 0)
	emit("started")
	_ = app.Cleanup()
	expect("cleaned up without a stop", 0)
}
