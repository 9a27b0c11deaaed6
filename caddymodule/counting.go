package caddymodule

import (
	"net/http"

	"github.com/postern-dev/postern/caddymodule/dialect"
)

// count answers how many tokens a request would have. It asks no upstream: the
// model may be busy, and clients ask often.
func (c *completion) count(r *http.Request) *dialect.Error {
	if derr := c.decode(r); derr != nil {
		return derr
	}
	n := c.learner.calibration.Count(c.ctx, registration(c.exchange.found), c.call.Prompt())
	if c.ctx.Err() != nil {
		return c.broken(c.ctx.Err())
	}
	_ = c.answer.whole(http.StatusOK, dialect.TokenCount(c.exchange.Operation, n)) // a failed write means that the client is gone
	return nil
}
