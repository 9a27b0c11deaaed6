package serve

import (
	"net/http"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/connector/panics"
)

// errNoRouter is the result of a request that no Router has received.
var errNoRouter = dialect.Internal("no model_route follows model_dialect in this route of the gateway's configuration")

// forward sends a request that was read, until the client has its answer or an error is final. It sends the request
// again if it was changed because of a model server's error, and to the fallback if no model has seen it. The caller
// writes the error to the client.
func (c *clientRequest) forward(w http.ResponseWriter, r *http.Request, next Handler) *dialect.Error {
	var asked *askedDeployment
	derr := c.prepare()
	for {
		again := false
		if derr == nil {
			derr, again = c.attempt(w, r, next)
		}
		switch {
		case again:
			c.exchange.span.retry(c.ctx, c.exchange, derr)
			derr = nil
		case derr == nil:
			return c.checkCalls(r, next)
		case asked == nil && derr.Unserved && c.bodyForFallback != nil && c.exchange.attempts.unserved() && !c.hasLeft():
			if asked = c.fallBack(derr); asked == nil {
				return derr
			}
			if derr = c.decode(c.bodyForFallback); derr == nil {
				derr = c.prepare()
			}
		case asked != nil && c.response == nil && c.ctx.Err() == nil && c.exchange.attempts.unserved():
			return c.restore(asked)
		default:
			return derr
		}
	}
}

// prepare checks the size of a decoded prompt, and opens the answer if it is a stream.
func (c *clientRequest) prepare() *dialect.Error {
	c.response = nil
	if derr := c.fitPrompt(); derr != nil {
		return derr
	}
	c.measureForAnswer()
	ex := c.exchange
	ex.passed = &c.modelRequest
	if ex.Streamed = c.call.Streamed(); !ex.Streamed {
		return nil
	}
	if ex.Operation.Dialect.Estimates() {
		prompt := c.call.Prompt()
		go func() { // while the upstream processes the prompt
			defer panics.Recover(c.Logger, "estimating a prompt")
			c.estimate(prompt)
		}()
	}
	c.answer.open(c.call.NewStream(), c.KeepAlive)
	return nil
}

// attempt passes the request to the next handlers, and the model server's answer to the client. again reports whether
// the request was changed because of the error, and must be sent again.
func (c *clientRequest) attempt(w http.ResponseWriter, r *http.Request, next Handler) (_ *dialect.Error, again bool) {
	defer c.release()
	c.response = nil
	if err := next.ServeHTTP(w, r); err != nil {
		return c.handlerError(err), false
	}
	if c.response == nil {
		return errNoRouter, false
	}
	derr := c.receive(c.response)
	if derr != nil && c.streaming { // nothing was sent, so another stream sends the error, or the next answer
		c.streaming = false
		c.answer.open(c.call.NewStream(), c.KeepAlive)
	}
	c.recordOverflow(derr)
	if derr, again = c.noRoom(derr); again {
		return derr, true
	}
	again = derr != nil && derr.RefusesEffort && c.call.DropEffort()
	c.effortRejected = c.effortRejected || again
	return derr, again
}
