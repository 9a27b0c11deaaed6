package serve

import (
	"net/http"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/scope"
	"github.com/postern-dev/postern/caddymodule/store"
)

// Exchange is what the three handlers share about one request. One goroutine at
// a time uses it.
type Exchange struct {
	// Set by Authenticator.
	RequestID string         // req_…, on every answer
	Account   string         // the key's account
	Key       *store.LiveKey // the key that authenticated the request, nil before
	Start     time.Time

	// Set by Translator.
	Operation dialect.Operation
	Model     string        // the public name that the client asked for
	Streamed  bool          // the client asked for a stream
	Upstream  Request       // the upstream request
	Usage     dialect.Usage // tokens, once the upstream has reported them

	// Set by Router and, of the deployment, while Translator reads the request.
	Deployment string // the registered name, "" while unknown
	Connector  string // id of the connector that was chosen
	Reason     string // why the model was refused, for the access log

	found      store.Deployment // by find
	completion *completion      // takes the upstream's answer
	held       holdings         // of the memory budget
	running    bool             // counted as in flight
}

// Request is an upstream request that lacks nothing but the model id.
type Request struct {
	Path   string                               // "/v1/chat/completions"
	Header http.Header                          // all that goes into the tunnel
	Body   func(model string) *dialect.Segments // the body for an upstream model id
}

// exchangeKey is the context key of the exchange.
type exchangeKey struct{}

// find finds the deployment of the model that the client asked for, and checks
// the key's scope. To the client, a model out of scope does not exist; the
// access log has the difference.
func (s *Server) find(st *store.Store, ex *Exchange) (store.Deployment, *dialect.Error) {
	deployment, ok := st.Deployment(ex.Account, ex.Model)
	if !ok {
		ex.Reason = "unknown_model"
		return store.Deployment{}, dialect.UnknownModel(ex.Model)
	}
	ex.Deployment = deployment.Name
	if !ex.running {
		ex.running = true
		s.Observer.Running(ex, 1)
	}
	if !ex.Key.Scope().Allows(deployment.Name) {
		ex.Reason = "out_of_scope"
		return store.Deployment{}, dialect.UnknownModel(ex.Model)
	}
	ex.found = deployment
	return deployment, nil
}

// Placeholder is the value of a placeholder, once the key is known.
func (ex *Exchange) Placeholder(key string) (any, bool) {
	if ex.Key == nil {
		return nil, false
	}
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
		return ex.ModelName(), true
	}
	return nil, false
}

// ModelName is the model that the client asked for, if it can be a name; else it
// can be anything, a prompt too.
func (ex *Exchange) ModelName() string {
	if scope.CheckName(ex.Model) != nil {
		return ""
	}
	return ex.Model
}
