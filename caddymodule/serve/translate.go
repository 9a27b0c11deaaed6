package serve

import (
	"cmp"
	"context"
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
	StoreOn      = "on"      // each key has its own responses
	StoreOff     = "off"     // nothing is kept
	StoreAccount = "account" // the keys of an account share responses
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
	a := newAnswer(w)
	operation, derr := dialect.Lookup(r.Method, r.URL.EscapedPath(), r.Header)
	ex.Operation = operation
	defer t.end(ex, a)
	if derr == nil {
		derr = t.perform(w, r, ex, a, next)
	}
	if derr != nil {
		a.fail(operation.Dialect, ex.RequestID, derr)
	}
	if a.cut(r.ProtoMajor) { // returning would end the answer as if it were complete
		panic(http.ErrAbortHandler)
	}
	return nil
}

// end releases the memory of the request and records it.
func (t *Translator) end(ex *Exchange, a *answer) {
	defer panics.Recover(t.Logger, "recording a request")
	ex.held.place.free()
	ex.held.reservation.Release()
	ex.held.fetched.Release()
	ending := a.end(ex.Operation.Dialect)
	if ex.running {
		t.Observer.Running(ex, -1)
	}
	t.account(ex, ending)
}

// perform performs the request's operation. The caller writes the error to the
// client.
func (t *Translator) perform(w http.ResponseWriter, r *http.Request, ex *Exchange, a *answer,
	next Handler) (derr *dialect.Error) {
	defer func() {
		switch v := recover(); {
		case t.crashed(v):
			a.crash(ex.Operation.Dialect, ex.RequestID)
		case v != nil:
			panic(v)
		}
	}()
	var body []byte
	switch {
	case ex.Operation.Kind == dialect.ListModels:
		body, derr = listModels(ex, r)
	case ex.Operation.Kind == dialect.GetModel:
		body, derr = getModel(ex)
	case ex.Operation.Kind == dialect.GetKey:
		body, derr = t.getKey(r.Context(), ex)
	case ex.Operation.ResponseID != "":
		body, derr = t.keptResponse(r.Context(), ex, r.URL.Query())
	default:
		c := &completion{Translator: t, Backend: ex.backend, exchange: ex, answer: a, ctx: r.Context(), header: r.Header}
		if ex.Operation.UpstreamPath() != "" {
			return c.serve(w, r, next)
		}
		body, derr = c.count(r)
	}
	if derr == nil {
		_ = a.whole(http.StatusOK, body) // a failed write means that the client is gone
	}
	return derr
}

// listModels returns the deployments that the key's scope allows.
func listModels(ex *Exchange, r *http.Request) ([]byte, *dialect.Error) {
	var models []dialect.Model
	for _, deployment := range ex.backend.Store.Deployments(ex.Account) {
		if ex.Key.Scope().Allows(deployment.Name) {
			models = append(models, modelOf(deployment))
		}
	}
	return dialect.ModelsList(models, r.URL.Query(), r.Header.Get("Anthropic-Version") != "")
}

// getModel returns one deployment. If the key's scope does not allow it, the error is
// the same as for an unknown model.
func getModel(ex *Exchange) ([]byte, *dialect.Error) {
	name := ex.Operation.ModelID
	deployment, ok := ex.backend.Store.Deployment(ex.Account, name)
	if !ok || !ex.Key.Scope().Allows(name) {
		return nil, ex.unknown(name)
	}
	return dialect.ModelObject(modelOf(deployment)), nil
}

// modelOf returns the entry of a deployment in the list of models.
func modelOf(d store.Deployment) dialect.Model {
	return dialect.Model{ID: d.Name, Kind: string(cmp.Or(d.Kind, store.ChatModel)), Owner: d.Account, Created: d.CreatedAt}
}

// keptResponse returns a kept response or its input items, or deletes it.
func (t *Translator) keptResponse(ctx context.Context, ex *Exchange, q url.Values) ([]byte, *dialect.Error) {
	id := ex.Operation.ResponseID
	view := t.keptView(ctx, ex)
	response, ok := view.Response(id)
	if ex.held.full {
		return nil, dialect.MemoryFull()
	}
	if !ok {
		return nil, dialect.ResponseNotFound(id)
	}
	ex.held.reservation = ex.reserve()
	if ex.held.holdAnswer(response.Size()) != nil { // until it was sent
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
	}
	return response.Body, nil
}

// keptView returns the kept responses that the request can access.
func (t *Translator) keptView(ctx context.Context, ex *Exchange) kept.View {
	owner := kept.Owner{Account: ex.Account, Key: ex.Key.ID()}
	switch t.ResponseStore {
	case StoreOff:
		return kept.View{}
	case StoreAccount:
		owner.Key = ""
	}
	ex.held.fetched = ex.reserve()
	view := ex.backend.learner.kept.View(owner, ex.Key.Owner(), ex.Key)
	return view.With(kept.NewRemote(ctx, ex.backend.peers, ex.held.fetch))
}
