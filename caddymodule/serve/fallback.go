package serve

import (
	"cmp"
	"net/http"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/store"
)

// servedBy is the header with the name of the fallback that serves a request.
const servedBy = "X-Postern-Model"

// fallBack passes a request that no model has seen to the fallback of its deployment, and returns the
// client's error. A fallback has no fallback of its own. If no model sees the request there either, and no
// model server refuses it, the first error stands.
func (c *clientRequest) fallBack(w http.ResponseWriter, r *http.Request, next Handler, first *dialect.Error,
) *dialect.Error {
	ex, deployment, connector := c.exchange, c.deployment, c.exchange.Connector
	d, ok := c.Store.Deployment(ex.Account, deployment.Fallback)
	_, derr := ex.check(d, ok)
	if embeds := ex.Operation.Kind == dialect.Embeddings; derr != nil || embeds != (d.Kind == store.EmbeddingsModel) {
		return first
	}
	c.Logger.Debug("the fallback serves a request", "deployment", deployment.Name, "fallback", d.Name,
		"request_id", ex.RequestID, "error", first.Message)
	if ex.Streamed && ex.Operation.Dialect.Estimates() {
		c.estimate("", c.call.Prompt()) // it stays, so that a ping meanwhile does not read what changes here
	}
	ex.settle(dialect.Usage{})
	d.Options.Safeguards = cmp.Or(d.Options.Safeguards, deployment.Options.Safeguards)
	c.assign(d)
	ex.span.retry(r.Context(), ex, first)
	ex.Connector = ""
	c.answer.header(http.Header{servedBy: {d.Name}, maxTokens: nil})
	ex.MaxTokens, c.repeated = 0, false
	c.noEffort, c.info.Effort, c.unstreamed, c.kept = false, "", false, 0
	c.reserved.fetched.Release() // the body is decoded with its references
	c.held = c.reserved.request
	derr = c.decode(c.body)
	c.held = 0
	if derr == nil {
		derr = c.pass(w, r, next)
	}
	if derr == nil || derr == c.result || c.ctx.Err() != nil || !ex.attempts.waiting() {
		return derr
	}
	c.assign(deployment)
	ex.Connector, ex.Reason, ex.limit = connector, "", ""
	c.answer.header(http.Header{servedBy: nil})
	return first
}
