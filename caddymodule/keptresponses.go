package caddymodule

import (
	"net/http"
	"net/url"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/dialect/kept"
)

// Values of the option response_store.
const (
	storeOn      = "on"      // each key has its own responses
	storeOff     = "off"     // nothing is kept
	storeAccount = "account" // the keys of an account share theirs
)

// keptResponse answers what a client wants of a response that is kept.
func (d *Dialect) keptResponse(a *answer, ex *exchange, q url.Values) *dialect.Error {
	open, err := d.app.store.val.get()
	if err != nil {
		return d.app.internal("opening its store", err)
	}
	l := open.learner
	id := ex.Operation.ResponseID
	view := d.keptView(l, ex)
	response, ok := view.Response(id)
	if !ok {
		return dialect.ResponseNotFound(id)
	}
	ex.held.reservation = open.memory.Open(ex.Account, ex.Key.ID())
	if ex.held.holdAnswer(response.Size()) != nil { // until the client has taken it
		return dialect.MemoryFull()
	}
	body := response.Body
	switch ex.Operation.Kind {
	case dialect.DeleteResponse:
		view.Delete(id)
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

// keptView returns what a request may see of the kept responses.
func (d *Dialect) keptView(l *learner, ex *exchange) kept.View {
	owner := kept.Owner{Account: ex.Account, Key: ex.Key.ID()}
	switch d.ResponseStore {
	case storeOff:
		return kept.View{}
	case storeAccount:
		owner.Key = ""
	}
	return l.kept.View(owner, ex.Key)
}
