package serve

import (
	"net/http"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/store"
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
	ex, err := ExchangeOf(r)
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
	ex.held.reservation.Release()
	status, first := a.end()
	if ex.running {
		t.Observer.Running(ex, -1)
	}
	t.Observer.Ended(ex, status)
	t.record(ex, a.outcome(ex.Operation.Dialect), first)
}

// perform performs the request's operation. The caller writes the error to the
// client.
func (t *Translator) perform(w http.ResponseWriter, r *http.Request, ex *Exchange, a *answer, next Handler) *dialect.Error {
	b, err := t.Open()
	if err != nil {
		return t.internal("open its store", err)
	}
	switch {
	case ex.Operation.Kind == dialect.ListModels:
		return listModels(a, ex, r, b.Store)
	case ex.Operation.Kind == dialect.GetModel:
		return getModel(a, ex, b.Store)
	case ex.Operation.ResponseID != "":
		return t.keptResponse(a, ex, b, r.URL.Query())
	}
	c := &completion{Translator: t, exchange: ex, answer: a, ctx: r.Context(), Backend: b}
	if ex.Operation.UpstreamPath() == "" {
		return c.count(r)
	}
	return c.serve(w, r, next)
}

// listModels answers with the deployments that the key's scope allows.
func listModels(a *answer, ex *Exchange, r *http.Request, st *store.Store) *dialect.Error {
	var models []dialect.Model
	for _, deployment := range st.Deployments(ex.Account) {
		if ex.Key.Scope().Allows(deployment.Name) {
			models = append(models, modelOf(deployment))
		}
	}
	body, derr := dialect.ModelsList(models, r.URL.Query(), r.Header.Get("Anthropic-Version") != "")
	if derr != nil {
		return derr
	}
	_ = a.whole(http.StatusOK, body) // a failed write means that the client is gone
	return nil
}

// getModel answers with one deployment. If the key's scope does not allow it, the
// answer is the same as for an unknown model.
func getModel(a *answer, ex *Exchange, st *store.Store) *dialect.Error {
	name := ex.Operation.ModelID
	deployment, ok := st.Deployment(ex.Account, name)
	if !ok || !ex.Key.Scope().Allows(name) {
		return dialect.UnknownModel(name)
	}
	_ = a.whole(http.StatusOK, dialect.ModelObject(modelOf(deployment)))
	return nil
}

// modelOf returns the entry of a deployment in the list of models.
func modelOf(d store.Deployment) dialect.Model {
	return dialect.Model{ID: d.Name, Owner: d.Account, Created: d.CreatedAt}
}
