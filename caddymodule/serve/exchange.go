package serve

import (
	"cmp"
	"errors"
	"net/http"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/scope"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/memory"
	"github.com/postern-dev/postern/connector/text"
)

// Exchange is the state of one request that the three handlers share, grouped by the handler that
// writes it. It is not safe for concurrent use.
type Exchange struct {
	RequestID string // req_…, sent with every answer
	Start     time.Time
	Outcome   activity.Outcome // once it has ended
	Reason    string           // why the key, the model or a limit refused the request, for the access log

	authenticated
	translated
	routed
}

// authenticated is written by Authenticator.
type authenticated struct {
	Account  string // the key's account
	Key      Caller // the key that authenticated the request, nil before
	backend  *Backend
	keyCall  *store.Call // ends when the key no longer allows the model; nil: a request of the console without a key
	question *Question   // of the console; nil: a client has sent the request
	// set by Translator: the person behind the key; "": requests with the key name none
	person  string
	subject limits.Subject // the person
}

// Caller is what a request needs to know of its key, implemented by [store.LiveKey] and, for requests of the console,
// withoutKey.
type Caller interface {
	ID() string // "": without a key
	Owner() string
	Key() store.Key // the record
	// GroupLimits returns the groups with limits that the key counts for, and the lowest of these limits.
	GroupLimits() (groups []limits.Subject, lowest limits.UsageLimits)
	Scope() scope.Scope
	Allows(model string) bool
	DefaultModel() string
	Priority() store.Priority
	NamesPeople() (header string, inBody bool)
}

// translated is written by Translator.
type translated struct {
	Operation  dialect.Operation
	Model      string        // the name that the client asked for, which answers carry
	Deployment string        // the public name of the deployment that serves the request, "" while unknown
	Streamed   bool          // the client asked for a stream
	Dropped    string        // what was dropped of the request, see [dialect.Call]
	Usage      dialect.Usage // tokens, once the request has ended; an estimate may lack the prompt
	passed     *modelRequest // to Router
}

// routed is written by Router. Translator records it when the request has ended.
type routed struct {
	Connector    string // id of the chosen connector
	MaxTokens    int64  // limit of the answer in place of the client's, so that it fits into the window; 0: the client's
	limitReached string // that has refused the request, for the activity
	attempts     attempts
	span         attemptSpan
	release      func(limits.Used) // releases what limits have granted; nil without limits, and once it was called
	judged       limits.Used       // by the judge of the answer
}

// client returns who takes turns: the key of the request, or the person behind it, and the key's owner.
func (ex *Exchange) client() fair.Client {
	return fair.Client{Owner: ex.Key.Owner(), Key: cmp.Or(ex.subject.ID, ex.Key.ID())}
}

// reservation returns an empty reservation in the memory budget.
func (ex *Exchange) reservation() memory.Reservation {
	return ex.backend.Memory.Open(ex.Account, ex.Key.Owner(), ex.Key.ID())
}

// exchangeKey is the context key of the exchange.
type exchangeKey struct{}

// NewExchange returns an exchange for a new request.
func NewExchange() *Exchange {
	return &Exchange{RequestID: dialect.NewRequestID(), Start: time.Now()}
}

// errOrder is returned by a handler that another one must precede.
var errOrder = errors.New("model_auth, model_dialect and model_route must be in the same route, in this order")

// exchangeOf returns the request's exchange.
func exchangeOf(r *http.Request) (*Exchange, error) {
	if ex, ok := r.Context().Value(exchangeKey{}).(*Exchange); ok {
		return ex, nil
	}
	return nil, errOrder
}

// check checks whether the request may use a deployment: whether it exists, the key's scope and the model's
// kind. The client gets the same error for an unknown model and one out of scope. The reason
// distinguishes them in the access log.
func (ex *Exchange) check(d store.Deployment, exists bool) (reason string, derr *dialect.Error) {
	switch {
	case !exists:
		return "unknown_model", dialect.UnknownModel(ex.Model, ex.similar(ex.Key.Allows))
	case ex.keyCall != nil && !ex.keyCall.AllowModel(d.Name):
		return "out_of_scope", dialect.OutOfScope(ex.Model, ex.similar(ex.Key.Allows))
	// A model server may have embeddings of a chat model, too.
	case d.Kind == store.EmbeddingsModel && ex.Operation.Generates():
		return "wrong_kind", dialect.EmbeddingsOnly(d.Name)
	}
	return "", nil
}

// refusalDetail returns more about a refusal than the client gets, for the activity, whose readers may list all models.
func (ex *Exchange) refusalDetail(e Ending) string {
	switch {
	case e.Kind == dialect.KindUnknownModel && e.Class == dialect.ClassPolicy:
		name, in := cmp.Or(ex.Deployment, ex.ModelName()), ex.Key.Scope()
		if in.Matches(name) {
			return "`" + name + "` is in the key's scope, but in that of no group of the key."
		}
		return "`" + name + "` is outside the key's scope `" + in.String() + "`."
	case e.Kind == dialect.KindUnknownModel && e.Class == dialect.ClassCaller:
		if similar := ex.similar(func(string) bool { return true }); similar != "" {
			return "No model has this name; did you mean `" + similar + "`?"
		}
		return "No model has this name."
	}
	return ex.limitReached
}

// similar returns the model that the client may have meant, of those that are allowed, or "": the deployment of the
// model with this name at its server, or a similar name. The list is as long as that of GET /v1/models.
func (ex *Exchange) similar(allowed func(name string) bool) string {
	var names []string
	asked := scope.Canonical(ex.Model)
	for _, d := range ex.backend.Store.Deployments(ex.Account) {
		if !allowed(d.Name) {
			continue
		}
		if d.Model != "" && scope.Canonical(d.Model) == asked {
			return d.Name
		}
		names = append(names, d.Names()...)
	}
	return text.Similar(ex.Model, names)
}

// Placeholder returns the value of a placeholder, once the key is known.
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

// ModelName returns the requested model, or "" if it is not a valid name. An invalid
// name could contain anything, even a prompt.
func (ex *Exchange) ModelName() string {
	if scope.CheckName(ex.Model) != nil {
		return ""
	}
	return ex.Model
}
