package serve

import (
	"net/http"
	"net/url"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/dialect/kept"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/panics"
)

// Values of Translator.ResponseStore.
const (
	StoreOn  = "on"  // each key has its own responses
	StoreOff = "off" // nothing is kept
)

// Translator serves requests in the client's dialect.
type Translator struct {
	*Server
	MaxBody       int64         // bytes
	KeepAlive     time.Duration // interval of pings in a silent stream; negative: no pings
	ResponseStore string
}

// Serve answers a request. It fails only if Authenticator does not precede it.
func (t *Translator) Serve(w http.ResponseWriter, r *http.Request, next Handler) error {
	ex, err := exchangeOf(r)
	if err != nil {
		return err
	}
	c := &clientRequest{
		Translator: t, Backend: ex.backend, ctx: r.Context(),
		modelRequest: modelRequest{exchange: ex, header: r.Header, answer: &answer{w: w}},
	}
	operation, derr := dialect.Lookup(r.Method, r.URL.EscapedPath(), r.Header)
	ex.Operation = operation
	defer c.drain(r) // without the memory of the request
	defer c.end()
	if derr == nil {
		derr = c.perform(w, r, next)
	}
	if derr != nil {
		c.answer.fail(operation.Dialect, ex.RequestID, derr)
	}
	if c.answer.mustAbort(r.ProtoMajor) { // returning would end the answer as if it were complete
		panic(http.ErrAbortHandler)
	}
	return nil
}

// end releases the memory of the request and records it.
func (c *clientRequest) end() {
	defer panics.Recover(c.Logger, "recording a request")
	c.release() // after a panic
	c.memory.reservation.Release()
	ending := c.answer.end(c.exchange.Operation.Dialect)
	if c.running {
		c.Observer.Running(c.exchange, -1)
	}
	c.finish(ending)
}

// perform performs the request's operation. The caller writes the error to the
// client.
func (c *clientRequest) perform(w http.ResponseWriter, r *http.Request, next Handler) (derr *dialect.Error) {
	ex := c.exchange
	defer func() {
		switch v := recover(); {
		case c.crashed(v):
			c.answer.crash(ex.Operation.Dialect, ex.RequestID)
		case v != nil:
			panic(v)
		}
	}()
	var body []byte
	switch {
	case ex.Operation.UpstreamPath() != "":
		if ex.Operation.Kind == dialect.Voices && ex.question == nil {
			if ex.Operation.ID, derr = c.voicesModel(r); derr != nil {
				return derr
			}
		}
		if derr = c.read(r); derr != nil {
			return derr
		}
		return c.forward(w, r, next)
	case ex.Operation.Kind == dialect.ListModels:
		body, derr = c.listModels(r)
	case ex.Operation.Kind == dialect.GetModel:
		body, derr = c.getModel()
	case ex.Operation.Kind == dialect.SpeechModels:
		body = dialect.SpeechList(c.speechModels())
	case ex.Operation.Kind == dialect.GetKey:
		body, derr = c.getKey()
	case ex.Operation.Kind == dialect.ListPaths:
		body = dialect.PathsList(c.Page())
	case ex.Operation.ID != "":
		body, derr = c.keptResponse(r.URL.Query())
	default:
		body, derr = c.countTokens(r)
	}
	if derr == nil {
		_ = c.answer.whole(http.StatusOK, body) // a failed write means that the client is gone
	}
	return derr
}

// listModels returns the deployments that the key's scope allows, an entry for each of their names.
func (c *clientRequest) listModels(r *http.Request) ([]byte, *dialect.Error) {
	ex := c.exchange
	var models []dialect.Model
	for _, deployment := range ex.backend.Store.Deployments(ex.Account) {
		if !ex.Key.Scope().Allows(deployment.Name) {
			continue
		}
		model := c.modelOf(deployment)
		for _, model.ID = range deployment.Names() {
			models = append(models, model)
		}
	}
	return dialect.ModelsList(ex.Operation.Dialect, models, r.URL.Query())
}

// getModel returns the deployment of a name. If the key's scope does not allow it, the error is
// the same as for an unknown model.
func (c *clientRequest) getModel() (_ []byte, derr *dialect.Error) {
	ex := c.exchange
	name := ex.Operation.ID
	deployment, ok := ex.backend.Store.Resolve(ex.Account, name, ex.Key.Scope())
	ex.Model = name
	if ex.Reason, derr = ex.check(deployment, ok); derr != nil {
		return nil, derr
	}
	model := c.modelOf(deployment)
	model.ID = name
	return dialect.ModelObject(ex.Operation.Dialect, model), nil
}

// modelOf returns the entry of a deployment in the list of models, without a name. Its context window is the smallest
// one of its connectors: a request can go to any.
func (c *clientRequest) modelOf(d store.Deployment) dialect.Model {
	smallest := c.smallestWindow(c.exchange, &d)
	output, _ := c.exchange.lowest(maxOutput)
	efforts := c.Observed.Efforts(&d, c.exchange.client().Owner)
	return dialect.Model{
		Kind: string(d.ModelKind()), Owner: d.Account, Created: d.CreatedAt,
		Window: smallest, Output: dialect.Lowest(output, smallest),
		Efforts: append(efforts.Work, efforts.Sent...), Status: c.Observed.Status(&d),
	}
}

// keptResponse returns a kept response or its input items, or deletes it.
func (c *clientRequest) keptResponse(q url.Values) ([]byte, *dialect.Error) {
	ex := c.exchange
	id := ex.Operation.ID
	view := c.keptView()
	response, ok := view.Response(id)
	if !ok {
		return nil, dialect.ResponseNotFound(id)
	}
	c.memory.reservation = ex.reservation()
	if c.memory.reserveAnswer(response.Size()) != nil { // until it was sent
		return nil, dialect.MemoryFull()
	}
	switch ex.Operation.Kind {
	case dialect.DeleteResponse:
		if !view.Delete(id) {
			return nil, dialect.ResponseNotFound(id)
		}
		return dialect.DeletedResponse(id), nil
	case dialect.ListInputItems:
		return dialect.InputItems(response.Input, q)
	case dialect.CancelResponse:
		return nil, dialect.NotCancelable()
	}
	return response.Body, dialect.WholeOnly(q)
}

// keptView returns the kept responses that the request can access.
func (c *clientRequest) keptView() kept.View {
	if c.ResponseStore == StoreOff {
		return kept.View{}
	}
	key := c.exchange.Key
	return c.completions.kept.View(kept.Owner{Account: c.exchange.Account, Key: key.ID()}, key.Owner(), key)
}
