package serve

import (
	"net/http"
	"net/url"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/dialect/kept"
)

// keptResponse answers a request for a kept response.
func (t *Translator) keptResponse(a *answer, ex *Exchange, b *Backend, q url.Values) *dialect.Error {
	id := ex.Operation.ResponseID
	view := t.keptView(b, ex)
	response, ok := view.Response(id)
	if !ok {
		return dialect.ResponseNotFound(id)
	}
	ex.held.reservation = b.Memory.Open(ex.Account, ex.Key.ID())
	if ex.held.holdAnswer(response.Size()) != nil { // until it was sent
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

// keptView returns the kept responses that the request can access.
func (t *Translator) keptView(b *Backend, ex *Exchange) kept.View {
	owner := kept.Owner{Account: ex.Account, Key: ex.Key.ID()}
	switch t.ResponseStore {
	case StoreOff:
		return kept.View{}
	case StoreAccount:
		owner.Key = ""
	}
	return b.learner.kept.View(owner, ex.Key)
}
