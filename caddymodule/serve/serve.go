// Package serve is the request path, without Caddy. Three handlers share one
// request, each around the next:
//
//	[Authenticator]  checks the key, before a byte of the body is read
//	[Translator]     reads and checks the body, renders the answer
//	[Router]         deployment → turn in its queue → tunnel → one round trip
//
// The [Exchange] in the request's context is the only thing that travels between
// them. Router hands the upstream's answer to Translator while it holds the place
// in the queue, and sends the request again if Translator asks for that.
package serve

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/queue"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/memory"
)

// Handler is the next handler of a request.
type Handler interface {
	ServeHTTP(w http.ResponseWriter, r *http.Request) error
}

// Server is what the handlers of a configuration share.
type Server struct {
	// Open returns the backend, opening it on first use.
	Open func() (*Backend, error)
	// Tunnels returns the live tunnels, false while there is no listener.
	Tunnels func() (Tunnels, bool)
	// StatusOf returns the HTTP status in an error of another handler, 0 for
	// none.
	StatusOf func(error) int
	Observer Observer
	Logger   *slog.Logger
}

// Observer counts requests. Its methods are on the way of each request.
type Observer interface {
	Refused(reason string)                // a request without a valid key
	Running(ex *Exchange, change float64) // 1: its deployment is known; -1: it has ended
	FirstByte(ex *Exchange)               // the upstream began to answer
	Rejected(ex *Exchange, reason string) // there was no turn for it
	Ended(ex *Exchange, status int)       // an authenticated request
}

// Backend is an open store and what requests need in addition. It outlives
// configurations.
type Backend struct {
	Store    *store.Store
	Memory   *memory.Budget // of requests and answers
	Activity *activity.Log
	Queues   *queue.Queues
	turns    *queue.Queues // of work for large requests
	learner  *learner
	unwatch  func()
}

// NewBackend starts what works on a store. It must be closed before the store.
func NewBackend(st *store.Store, budget *memory.Budget, log *activity.Log, logger *slog.Logger) (*Backend, error) {
	l, err := newLearner(st, budget, logger)
	if err != nil {
		return nil, err
	}
	b := &Backend{Store: st, Memory: budget, Activity: log, turns: newTurns(), learner: l}
	b.Queues = queue.New(func(n queue.Name) int {
		d, _ := st.Deployment(n.Account, n.Deployment)
		return d.MaxConcurrency
	})
	b.unwatch = st.Subscribe(b.onChange)
	return b, nil
}

// onChange follows the bounds of deployments.
func (b *Backend) onChange(c store.Change) {
	if c.Kind != store.KindDeployment {
		return
	}
	if n := (queue.Name{Account: c.Account, Deployment: c.ID}); c.Removed {
		b.Queues.Remove(n)
	} else {
		b.Queues.Changed(n)
	}
}

// Close ends the work and saves what was learned.
func (b *Backend) Close() {
	b.unwatch()
	b.learner.close()
}

// internal logs a failure of the gateway and returns the client's error.
func (s *Server) internal(doing string, err error) *dialect.Error {
	s.Logger.Error("failed to "+doing, "error", err)
	return dialect.Internal(fmt.Sprintf("The gateway failed to %s; its log has the reason.", doing))
}

// foreign maps the error of a handler that is not ours to the client's: Caddy's
// own error handling knows no dialect, and logs the request with its headers.
func (s *Server) foreign(err error) *dialect.Error {
	if status := s.StatusOf(err); status != 0 && status != http.StatusInternalServerError {
		return dialect.FromHandler(status)
	}
	return s.internal("pass a request from handler to handler", err)
}

// Fail answers a request outside the handlers with an error.
func Fail(w http.ResponseWriter, d dialect.Dialect, requestID string, derr *dialect.Error) {
	newAnswer(w).fail(d, requestID, derr)
}

// errNoExchange is the error of a handler without Authenticator before it.
var errNoExchange = errors.New("model_auth must come before model_dialect and model_route in the same route")

// ExchangeOf returns the request's exchange.
func ExchangeOf(r *http.Request) (*Exchange, error) {
	if ex, ok := r.Context().Value(exchangeKey{}).(*Exchange); ok {
		return ex, nil
	}
	return nil, errNoExchange
}

// NewExchange makes the exchange of a request.
func NewExchange() *Exchange {
	return &Exchange{RequestID: dialect.NewRequestID(), Start: time.Now()}
}
