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
	Model     string  // the public name that the client asked for
	Upstream  request // what to send once the upstream's model id is known

	// Set by model_route.
	Deployment string         // the registered name, "" while unknown
	Connector  string         // id of the connector that was chosen
	Response   *http.Response // the upstream's answer; its body is the reader's to close

	running   bool        // counted as in flight
	ownEntry  bool        // its access-log entry is ours to write (accesslog.go)
	notes     []zap.Field // what such an entry says beyond Caddy's own fields
	logFields *caddyhttp.ExtraLogFields
	replacer  *caddy.Replacer
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
func newExchange(r *http.Request) *exchange {
	ex := &exchange{RequestID: dialect.NewRequestID(), Start: time.Now()}
	ctx := r.Context()
	ex.logFields, _ = ctx.Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields)
	ex.replacer, _ = ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	return ex
}

// inContext returns the context that carries the exchange.
func (ex *exchange) inContext(ctx context.Context) context.Context {
	return context.WithValue(ctx, exchangeKey{}, ex)
}

// note adds a field to the access log and sets the placeholder
// {http.model_gateway.<name>}.
func (ex *exchange) note(name, value string) {
	field := zap.String(name, value)
	if ex.ownEntry {
		ex.notes = append(ex.notes, field)
	}
	if ex.logFields != nil {
		ex.logFields.Set(field)
	}
	if ex.replacer != nil {
		ex.replacer.Set("http.model_gateway."+name, value)
	}
}
