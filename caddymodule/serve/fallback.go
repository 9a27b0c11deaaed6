package serve

import (
	"cmp"
	"net/http"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/store"
)

// servedBy is the header with the name of the fallback that serves a request.
const servedBy = "X-Postern-Model"

// askedDeployment is the deployment that the client asked for, while its fallback serves the request.
type askedDeployment struct {
	store.Deployment
	connector string
	err       *dialect.Error // why it does not serve the request
}

// fallBack makes the fallback of the deployment serve a request that no model has seen. The body must be decoded again.
// It returns nil if the client may not use the fallback, or if that is of another kind.
// The fallback of a fallback is not used.
func (c *clientRequest) fallBack(derr *dialect.Error) *askedDeployment {
	ex, asked := c.exchange, &askedDeployment{c.deployment, c.exchange.Connector, derr}
	d, ok := c.Store.Deployment(ex.Account, asked.Fallback)
	_, refused := ex.check(d, ok)
	embeds := ex.Operation.Kind == dialect.Embeddings // vectors of different models do not compare
	if refused != nil || d.ModelKind() != asked.ModelKind() || embeds && d.ModelKind() != store.EmbeddingsModel {
		return nil
	}
	c.Logger.Debug("the fallback serves a request", "deployment", asked.Name, "fallback", d.Name,
		"request_id", ex.RequestID, "error", derr.Message)
	if ex.Streamed && ex.Operation.Dialect.Estimates() {
		c.estimate(c.call.Prompt()) // it stays, so that a ping meanwhile does not read what changes here
	}
	d.Options.Safeguards = cmp.Or(d.Options.Safeguards, asked.Options.Safeguards)
	c.assign(d)
	ex.span.retry(c.ctx, ex, derr)
	ex.Connector = ""
	c.answer.header(http.Header{servedBy: {d.Name}, maxTokens: nil})
	ex.MaxTokens, c.limitLowered, c.hadPlace = 0, false, false
	c.effortRejected, c.info.Effort, c.kept = false, "", 0
	c.held = c.memory.request
	return asked
}

// restore makes the deployment that the client asked for that of the request again, and returns its error: no model
// has seen the request at the fallback either, and no model server has refused it.
func (c *clientRequest) restore(asked *askedDeployment) *dialect.Error {
	c.assign(asked.Deployment)
	c.exchange.Connector, c.exchange.Reason, c.exchange.limitReached = asked.connector, "", ""
	c.answer.header(http.Header{servedBy: nil})
	return asked.err
}
