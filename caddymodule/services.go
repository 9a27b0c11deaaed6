package caddymodule

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/pairing"
	"github.com/postern-dev/postern/caddymodule/queue"
	"github.com/postern-dev/postern/caddymodule/rotation"
	"github.com/postern-dev/postern/caddymodule/signin"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/memory"
)

// services are an open store and what works on it. They live as long as the
// store is open, so that a reload forgets nothing: no code that a device has
// shown, no failed sign-in, no request of the last minute.
type services struct {
	store    *store.Store
	learner  *learner
	signIn   *signin.Service
	desk     *pairing.Service
	rotation *rotation.Service
	activity *activity.Log
	events   *gatewayEvents
	queues   *queue.Queues
	memory   *memory.Budget // of requests and answers
	unqueue  func()         // ends what tells queues of changes
}

// newServices starts what works on a store. force knows the configuration that
// new tokens are made for.
func newServices(st *store.Store, force *inForce, logger *slog.Logger) (*services, error) {
	budget := memory.NewBudget(defaultMaxMemory())
	learned, err := newLearner(st, budget, logger)
	if err != nil {
		return nil, err
	}
	queues, unqueue := newQueues(st)
	events := newEvents(st, logger)
	return &services{
		queues: queues, unqueue: unqueue,
		store:    st,
		memory:   budget,
		learner:  learned,
		signIn:   signin.New(signin.Options{Store: st, Logger: logger, Failed: observeSignInFailure}),
		desk:     pairing.New(pairing.Options{Store: st, Token: force.token, Pin: force.pin, Limited: events.pairingLimited, Logger: logger}),
		rotation: rotation.New(rotation.Options{Store: st, Token: force.token, Logger: logger}),
		activity: activity.New(activity.Options{Store: st, Logger: logger}),
		events:   events,
	}, nil
}

// close ends the services, and closes the store after them: they save what they
// know.
func (s *services) close() error {
	s.events.close()
	s.unqueue()
	s.desk.Close()
	s.learner.close()
	err := s.activity.Close()
	return errors.Join(err, s.store.Close())
}

// inForce knows the started configurations that share a store, the newest last.
// That one is in force; if it fails or stops, the one before.
type inForce struct {
	mu   sync.Mutex
	apps []*App
}

// enter puts app's configuration in force.
func (f *inForce) enter(app *App) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.apps = append(f.apps, app)
}

// leave ends app's say.
func (f *inForce) leave(app *App) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.apps = slices.DeleteFunc(f.apps, func(a *App) bool { return a == app })
}

// app returns the configuration in force, nil if there is none.
func (f *inForce) app() *App {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.apps) == 0 {
		return nil
	}
	return f.apps[len(f.apps)-1]
}

// bound sets the bounds of the process's memory as the configuration in force
// has them.
func (f *inForce) bound(open *services) {
	if app := f.app(); app != nil {
		open.memory.Resize(app.MaxMemory)
		memory.SetSoftLimit(app.MaxMemory)
	}
}

// errNoAddress is why no token can be made.
var errNoAddress = errors.New("the address that connectors dial is not known; " +
	"add `public gw.example.com:7443` to the `model_gateway` block of the Caddyfile's global options and run `caddy reload`")

// token makes the tunnel token of a connector, with the address and the pin of
// the configuration in force.
func (f *inForce) token(connectorID, secret string) (string, error) {
	app := f.app()
	if app == nil {
		return "", fmt.Errorf("making a tunnel token: %w", errNotListening)
	}
	at := app.endpoint()
	switch {
	case at.Pin == "":
		return "", fmt.Errorf("making a tunnel token: %w", errNotListening)
	case at.Public == "":
		return "", fmt.Errorf("making a tunnel token: %w", errNoAddress)
	}
	return link.Token{Server: at.Public, URL: at.URL, Pin: at.Pin, Connector: connectorID, Secret: secret}.Encode(), nil
}

// pin is the pin of the identity that connectors see, "" while none is shown.
func (f *inForce) pin() string {
	if app := f.app(); app != nil {
		return app.endpoint().Pin
	}
	return ""
}
