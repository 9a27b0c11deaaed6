package caddymodule

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"

	"github.com/postern-dev/postern/caddymodule/events"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// formerConfiguration is the emitter of an earlier configuration.
type formerConfiguration chan<- string

func (c formerConfiguration) Emit(events.Event) { c <- "former" }

// newConfiguration handles the events that an App emits.
type newConfiguration chan<- string

func (c newConfiguration) Handle(context.Context, caddy.Event) error {
	c <- "new"
	return nil
}

// A configuration emits nothing before all apps have started: until then the
// events app must not be used.
func TestConfigurationsEnterWhenStarted(t *testing.T) {
	file := gatewayFile(freeUDP(t), "localhost:7443", filepath.Join(t.TempDir(), "gateway.db"))
	app, other := provision(t, file), provision(t, file)
	open, err := other.store.Get() // stays open until the test ends
	must(t, err)
	emitter := make(chan string, 1)
	open.Events.Push(formerConfiguration(emitter))
	err = app.events.Subscribe(&caddyevents.Subscription{
		Events: []string{"model_gateway.account_limit"}, Handlers: []caddyevents.Handler{newConfiguration(emitter)},
	})
	must(t, err)
	start(t, app)
	expect := func(when, want string) {
		t.Helper()
		open.Events.LimitCrossed(store.DefaultAccount, limits.Crossing{State: limits.State{
			Subject: limits.Subject{Of: limits.OfAccount, ID: store.DefaultAccount},
		}})
		if got := wait.For(t, emitter, "an event"); got != want {
			t.Errorf("%s: the %s configuration emits, want the %s one", when, got, want)
		}
	}
	expect("before all apps have started", "former")
	emit := func(name string) { app.events.Emit(caddy.Context{Context: t.Context()}, name, nil) }
	emit("started")
	expect("started", "new")
	emit("stopping")
	expect("stopping", "former")
	emit("started")
	_ = app.Cleanup()
	expect("cleaned up without a stop", "former")
}
