package caddymodule

import (
	"net/http"
	"net/url"

	"github.com/postern-dev/postern/caddymodule/dialect"
)

// keptResponse answers what a client wants of a response that is kept.
func (d *Dialect) keptResponse(a *answer, ex *exchange, q url.Values) *dialect.Error {
	open, err := d.app.store.val.get()
	if err != nil {
		return d.app.internal("opening its store", err)
	}
	l := open.learner
	id := ex.Operation.ResponseID
	response, ok := l.kept.Response(ex.Account, id)
	if !ok || !d.keepsResponses() {
		return dialect.ResponseNotFound(id)
	}
	ex.held.reservation = open.memory.Open(ex.Account, ex.Key.ID())
	if ex.held.holdAnswer(response.Size()) != nil { // until the client has taken it
		return dialect.MemoryFull()
	}
	body := response.Body
	switch ex.Operation.Kind {
	case dialect.DeleteResponse:
		l.kept.Delete(ex.Account, id)
		body = dialect.DeletedResponse(id)
	case dialect.ListInputItems:
		var derr *dialect.Error
		if body, derr = dialect.InputItems(response.Input, q); derr != nil {
			return derr
		}
	}
	_ = a.whole(http.StatusOK, body) // a failed write means that the client is gone
	return nil
}

// keepsResponses reports whether responses are kept.
func (d *Dialect) keepsResponses() bool { return d.ResponseStore == nil || *d.ResponseStore }
