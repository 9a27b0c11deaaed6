package caddymodule

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/queue"
	"github.com/postern-dev/postern/caddymodule/scope"
	"github.com/postern-dev/postern/caddymodule/store"
)

// exchange is what the three handlers share about one request: the only thing
// that travels between them. It is made by model_auth, filled on the way in,
// and carries the upstream's answer on the way out. One goroutine at a time
// uses it.
type exchange struct {
	// Set by model_auth.
	RequestID string         // req_…, on every answer
	Account   string         // the key's account
	Key       *store.LiveKey // the key that authenticated the request
	Start     time.Time

	// Set by model_dialect.
	Operation dialect.Operation
	Model     string        // the public name that the client asked for
	Streamed  bool          // the client asked for a stream
	Upstream  request       // what to send once the upstream's model id is known
	Usage     dialect.Usage // what the upstream said of the tokens, once it has

	// Set by model_route.
	Deployment string         // the registered name, "" while unknown
	Connector  string         // id of the connector that was chosen
	Response   *http.Response // the upstream's answer; its body is the reader's to close

	found   store.Deployment // what find found
	held    holdings         // of the memory budget
	place   queue.Place      // what the deployment's bound lets run
	running bool             // counted as in flight
}

// request is an upstream request that lacks nothing but the model id.
type request struct {
	Path   string                               // "/v1/chat/completions"
	Header http.Header                          // all that goes into the tunnel
	Body   func(model string) *dialect.Segments // the body for an upstream model id
}

// exchangeKey is the context key of the exchange.
type exchangeKey struct{}

// errNoExchange is what a handler answers that was put into a route without
// model_auth before it.
var errNoExchange = errors.New("model_auth must come before model_dialect and model_route in the same route")

// exchangeOf returns the request's exchange.
func exchangeOf(r *http.Request) (*exchange, error) {
	ex, ok := r.Context().Value(exchangeKey{}).(*exchange)
	if !ok {
		return nil, caddyhttp.Error(http.StatusInternalServerError, errNoExchange)
	}
	return ex, nil
}

// newExchange makes the exchange of a request.
func newExchange() *exchange {
	return &exchange{RequestID: dialect.NewRequestID(), Start: time.Now()}
}

// inContext returns the context that carries the exchange, and makes the
// placeholders of the exchange known.
func (ex *exchange) inContext(ctx context.Context) context.Context {
	if repl, ok := ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		repl.Map(ex.placeholder)
	}
	return context.WithValue(ctx, exchangeKey{}, ex)
}

// find finds the deployment of the model that the client asked for, and checks
// the key's scope.
func (ex *exchange) find(st *store.Store) (store.Deployment, *dialect.Error) {
	deployment, ok := st.Deployment(ex.Account, ex.Model)
	if !ok {
		return store.Deployment{}, dialect.UnknownModel(ex.Model)
	}
	ex.Deployment = deployment.Name
	ex.enter()
	if !ex.Key.Scope().Allows(deployment.Name) {
		return store.Deployment{}, dialect.OutOfScope(deployment.Name)
	}
	ex.found = deployment
	return deployment, nil
}

// placeholder is the value of a placeholder.
func (ex *exchange) placeholder(key string) (any, bool) {
	switch key {
	case "http.auth.user.id", "http.model_gateway.key_id":
		return ex.Key.ID(), true
	case "http.model_gateway.deployment":
		return ex.Deployment, true
	case "http.model_gateway.connector":
		return ex.Connector, true
	case "http.model_gateway.dialect":
		return string(ex.Operation.Dialect), true
	case "http.model_gateway.model":
		return ex.loggedModel(), true
	}
	return nil, false
}

// loggedModel is the model that the client asked for, if it can be a name;
// else it can be anything, a prompt too.
func (ex *exchange) loggedModel() string {
	if scope.CheckName(ex.Model) != nil {
		return ""
	}
	return ex.Model
}

// logFields is what the access log is told beyond Caddy's own fields.
func (ex *exchange) logFields() []zap.Field {
	var fields []zap.Field
	add := func(name, value string) {
		if value != "" {
			fields = append(fields, zap.String(name, value))
		}
	}
	if ex.Key != nil {
		add("key_id", ex.Key.ID())
	}
	add("dialect", string(ex.Operation.Dialect))
	add("model", ex.loggedModel())
	add("deployment", ex.Deployment)
	add("connector", ex.Connector)
	return fields
}
