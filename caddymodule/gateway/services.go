package gateway

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/events"
	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/caddymodule/pairing"
	"github.com/postern-dev/postern/caddymodule/serve"
	"github.com/postern-dev/postern/caddymodule/signin"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/memory"
	"github.com/postern-dev/postern/connector/panics"
)

// Services are an open store and the services on top of it. They live as long as
// the store is open, so a reload keeps pairing codes, failed sign-ins and the recent
// requests.
type Services struct {
	*serve.Backend
	SignIn  *signin.Service
	Pairing *pairing.Service
	Events  *events.Gateway
	Cluster Cluster // nil if the gateway is alone
}

// newServices starts the services of a store. cluster is nil if the gateway is alone.
func (s *Store) newServices(st *store.Store, cluster Cluster) (*Services, error) {
	log := activity.New(activity.Options{
		Store: st, Path: filepath.Join(filepath.Dir(s.config.Path), "activity.db"), Logger: s.logger,
	})
	var edges fair.Edges
	if cluster != nil {
		edges = cluster.Serving
	}
	backend, err := serve.NewBackend(st, memory.NewBudget(DefaultMaxMemory()), log, s.logger)
	if err != nil {
		return nil, err
	}
	backend.Limiter.Divide(edges)
	signIn, err := signin.New(signin.Options{
		Store: st, Logger: s.logger, Failed: s.counters.SignInFailed, Edges: edges,
	})
	if err != nil {
		backend.Close()
		return nil, err
	}
	feed := events.New(events.Options{Store: st, Logger: s.logger, Lost: s.counters.EventsLost})
	backend.Crossed = feed.LimitCrossed
	backend.Observed.Changed = feed.ModelChanged
	backend.Observed.Route = func(connector string, target tunnel.Target) (r tunnel.DeploymentRoute, ok bool) {
		if g, current := s.configurations.Newest(); current {
			return g.Route(connector, target)
		}
		return r, false
	}
	backend.Observed.Measure = func(ctx context.Context, d store.Deployment, connector string) (again bool) {
		defer panics.Recover(s.logger, "measuring a context window")
		if g, current := s.configurations.Newest(); current {
			if service, err := g.Manage(); err == nil {
				return service.MeasureIdle(ctx, d, connector)
			}
		}
		return false
	}
	services := &Services{
		Backend: backend,
		SignIn:  signIn,
		Pairing: pairing.New(pairing.Options{
			Store: st, Token: s.Token, Pin: s.Pin, Limited: feed.PairingLimited, Edges: edges, Logger: s.logger,
		}),
		Events:  feed,
		Cluster: cluster,
	}
	if cluster != nil {
		cluster.Start(services)
	}
	return services, nil
}

// close ends the services, then closes the store: services save their state when
// they end.
func (s *Services) close() error {
	s.Events.Close()
	s.Pairing.Close()
	s.Backend.Close()
	s.Store.Stopping()
	err := s.Activity.Close()
	return errors.Join(err, leave(s.Cluster), s.Store.Close())
}

// Token returns the tunnel token of a connector, with the address and the pin of
// the current configuration.
func (s *Store) Token(connectorID, secret string) (string, error) {
	g, ok := s.configurations.Newest()
	if !ok {
		return "", fmt.Errorf("creating a tunnel token: %w", ErrNotListening)
	}
	return g.Endpoint().Token(connectorID, secret)
}

// Pin returns the pin of the gateway's identity, "" without a listener.
func (s *Store) Pin() string {
	if g, ok := s.configurations.Newest(); ok {
		return g.Endpoint().Pin
	}
	return ""
}

// leave leaves the cluster, if there is one.
func leave(cluster Cluster) error {
	if cluster == nil {
		return nil
	}
	return cluster.Leave()
}
