// Package serve is the request path, without Caddy. Three nested handlers share
// one request:
//
//	[Authenticator]  checks the key before the body is read
//	[Translator]     reads the body; for each attempt, calls Router and renders the answer; accounts for the request
//	[Router]         limits → place in the deployment's queue → tunnel → one round trip
//
// They share the [Exchange], which the request's context carries; each handler writes one of its structs. Translator
// passes Router a modelRequest, in which Router returns the upstream's answer. The request keeps its place in the
// deployment until Translator has read the answer, or has given it up.
//
// No step calls the one above it: auth.go, translate.go, read.go, forward.go (the loop of attempts), route.go,
// routing.go, then client_answer.go, answer.go and, at the end, accounting.go.
package serve

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/observed"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/caddymodule/turns"
	"github.com/postern-dev/postern/connector/link/bodies"
	"github.com/postern-dev/postern/connector/memory"
)

// Defaults of the handlers' options.
const (
	DefaultMaxBody     = 32 << 20         // bytes, of Translator.MaxBody
	DefaultKeepAlive   = 10 * time.Second // of Translator.KeepAlive
	DefaultConnectWait = 3 * time.Second  // of Router.ConnectWait
)

// Handler is the next handler of a request.
type Handler interface {
	ServeHTTP(w http.ResponseWriter, r *http.Request) error
}

// Server holds the state that the handlers of a configuration share.
type Server struct {
	// Open returns the backend, opening it on first use.
	Open func() (*Backend, error)
	// Route returns the route of a deployment through a connector. ok is false if it is offline.
	Route func(connector string, target tunnel.Target) (r tunnel.DeploymentRoute, ok bool)
	// Recheck asks for the list of a model server again if it lacks the model of a deployment's route, which
	// has served a request.
	Recheck func(connector string, target tunnel.Target)
	// StatusOf returns the HTTP status of another handler's error, or 0.
	StatusOf func(error) int
	// ClientIP returns the address of a request's client, which a key may restrict.
	ClientIP func(*http.Request) netip.Addr
	// Page returns the address of the console's page for people with a key, "" if there is no console.
	Page     func() string
	Observer Observer
	Logger   *slog.Logger
}

// Observer counts requests. Its methods are called on the request path.
type Observer interface {
	Refused(reason string)                 // a request without a valid key
	Running(ex *Exchange, change float64)  // 1: its deployment is known; -1: it has ended
	FirstByte(ex *Exchange)                // the upstream began to answer
	Rejected(ex *Exchange, reason string)  // the request was rejected while queued
	Limited(s limits.State)                // a limit has refused a request
	Queued(ex *Exchange, d time.Duration)  // the request has waited in the queue
	Ended(ex *Exchange, e Ending)          // an authenticated request has ended
	Counted(ex *Exchange, u dialect.Usage) // the tokens of an ended request are known
}

// Backend is an open store and the other state that requests need. It outlives
// configurations.
type Backend struct {
	Store    *store.Store
	Memory   *memory.Budget // of requests and answers
	Bodies   *bodies.Cache  // of requests, within Memory
	Activity *activity.Log
	Limiter  *limits.Limiter
	Turns    *turns.Scheduler
	Observed *observed.Table // of model servers
	// Crossed is called when 80 or 100 percent of a limit per day or month are used: see [limits.Source].
	Crossed     func(account string, c limits.Crossing)
	cpu         *fair.Line // of long work on requests
	connectors  connectors
	completions *completions
	unwatch     func()
}

// NewBackend returns a running backend. It must be closed before the store.
func NewBackend(st *store.Store, budget *memory.Budget, log *activity.Log,
	logger *slog.Logger,
) (*Backend, error) {
	table := observed.New(time.Now)
	table.Deployment = st.Deployment
	c, err := newCompletions(st, table, logger)
	if err != nil {
		return nil, err
	}
	b := &Backend{
		Crossed: func(string, limits.Crossing) {}, Store: st, Memory: budget, Activity: log,
		Bodies: bodies.NewCache(budget.Excess), Observed: table,
		cpu: newCPULine(), completions: c,
	}
	b.Turns = turns.New(b.turnsOf)
	b.connectors = connectors{
		turns: b.Turns, find: findConnector,
		hubs: make(map[*tunnel.Hub]func()), accounts: make(map[string]string),
	}
	b.Limiter = limits.NewLimiter(limitSource{st, log, func(account string, c limits.Crossing) {
		b.Crossed(account, c)
	}}, logger)
	budget.Cache(b.Bodies.Trim)
	b.unwatch = st.Subscribe(b.onChange)
	return b, nil
}

// onChange passes changes of deployments and limits to the queues and completions.
func (b *Backend) onChange(c store.Change) {
	b.Observed.OnChange(c)
	switch c.Kind {
	case store.KindKey:
		b.Limiter.Changed(c.Account, limits.Subject{Of: limits.OfKey, ID: c.ID})
		if c.Removed {
			b.Bodies.Forget(c.ID)
		}
	case store.KindGroup:
		b.Limiter.Changed(c.Account, limits.Subject{Of: limits.OfGroup, ID: c.ID})
	case store.KindAccount:
		if c.Removed {
			b.Limiter.RemoveAccount(c.Account)
		} else {
			b.Limiter.Changed(c.Account, limits.Subject{Of: limits.OfAccount, ID: c.Account})
		}
	}
	if c.Kind != store.KindDeployment {
		return
	}
	b.completions.onChange(c)
	b.Turns.DeploymentChanged(c.Account, c.ID)
}

// turnsOf returns what decides where the requests of a deployment may go.
func (b *Backend) turnsOf(account, name string) (turns.Deployment, bool) {
	d, ok := b.Store.Deployment(account, name)
	return turns.Deployment{
		Connectors: d.Connectors, Upstream: d.Upstream, Model: d.Model, MaxConcurrency: d.MaxConcurrency,
		InOrder: d.Options.Order == compat.OrderFirst, LastOnline: b.connectors.lastOnline(d.Connectors),
	}, ok
}

// Close stops the backend and saves the token calibration.
func (b *Backend) Close() {
	b.unwatch()
	b.completions.close()
	b.Observed.Close()
}

// internalError logs a failure of the gateway and returns the client's error.
func (s *Server) internalError(doing string, err error) *dialect.Error {
	s.Logger.Error("failed to "+doing, "error", err)
	return dialect.Internal(fmt.Sprintf("The gateway failed to %s; its log has the reason.", doing))
}

// foreignError returns the client's error for an error of another module's handler.
// Caddy's error handling does not know dialects, and logs the request's headers.
func (s *Server) foreignError(err error) *dialect.Error {
	if status := s.StatusOf(err); status != 0 && status != http.StatusInternalServerError {
		return dialect.FromHandler(status)
	}
	return s.internalError("pass a request to the next handler", err)
}

// Fail sends an error for a request that the handlers do not serve.
func Fail(w http.ResponseWriter, d dialect.Dialect, requestID string, derr *dialect.Error) {
	(&answer{w: w}).fail(d, requestID, derr)
}
