package serve

import (
	"context"
	"errors"
	"sync"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
)

// clientRequest is Translator's state of a request.
type clientRequest struct {
	*Translator
	*Backend
	modelRequest // for Router

	ctx     context.Context // done when the client disconnects or the key is revoked
	running bool            // counted as in flight
	memory  reservations
	kept    int64  // bytes of kept responses that the request refers to
	leave   func() // ends the turn of awaitTurn; nil: the request has none

	unread          bool          // the body was refused before its end
	form            *dialect.Form // of the body; nil: it is JSON
	bodyForFallback []byte        // the client's body, if the deployment has a fallback
	held            int64         // bytes still held by the first decoding while the fallback decodes

	limitLowered    bool               // sent again, with a limit of the answer that fits
	effortRejected  bool               // sent again without reasoning effort, which the model has rejected
	info            dialect.AnswerInfo // about the last answer
	streaming       bool               // the answer is a stream
	wholeTranslated bool               // the answer is not a stream, and exchange.Usage is set
	refusedTokens   int64              // of a prompt that was too long, as the model server counted it; 0: unknown

	estimated sync.Once
	tokens    int // estimated, of the prompt
}

// orEnded returns derr. If the request was canceled and the client is still
// connected, it returns the error of the cancellation instead.
func (c *clientRequest) orEnded(derr *dialect.Error) *dialect.Error {
	if c.ctx.Err() != nil {
		if ended := c.brokenAnswer(c.ctx.Err()); ended != nil {
			return ended
		}
	}
	return derr
}

// registration returns the current registration of the request's deployment, false
// if it does not exist.
func (c *clientRequest) registration() (tokens.Registration, bool) {
	deployment, ok := c.Store.Deployment(c.exchange.Account, c.exchange.Deployment)
	return registration(deployment), ok
}

// estimate returns the estimated tokens of the prompt, computed once. If the prompt is
// nil or cannot be counted in time, the size of the request determines them.
func (c *clientRequest) estimate(p *tokens.Prompt) int {
	c.estimated.Do(func() {
		c.tokens = int(c.size / dialect.BytesPerToken)
		if r, ok := c.registration(); ok && p != nil {
			if n, err := c.countPrompt(c.ctx, r, p, estimateWait); err == nil && c.ctx.Err() == nil {
				c.tokens = n
			}
		}
	})
	return c.tokens
}

// sample returns the request as a sample, without tokens.
func (c *clientRequest) sample() sample {
	ex := c.exchange
	r, known := c.registration()
	return sample{
		registration: r, known: known, key: ex.Key.ID(), call: c.call, size: c.size + c.kept, connector: ex.Connector,
		memory: ex.reservation(),
	}
}

// handlerError returns the client's error for an error of the next handler.
func (c *clientRequest) handlerError(err error) *dialect.Error {
	var derr *dialect.Error
	switch {
	case errors.As(err, &derr):
		return derr
	case c.ctx.Err() != nil:
		return c.brokenAnswer(err)
	default:
		return c.foreignError(err)
	}
}

// brokenAnswer returns the client's error for an answer that was interrupted, nil if the
// client disconnected.
func (c *clientRequest) brokenAnswer(err error) *dialect.Error {
	var cut *dialect.Error
	switch {
	case errors.As(context.Cause(c.ctx), &cut):
		return cut
	case c.ctx.Err() != nil:
		c.answer.abandon()
		return nil
	case errors.As(err, &cut): // the attempt's time is over
		return cut
	default:
		c.Logger.Warn("the upstream's answer broke off", "deployment", c.exchange.Deployment,
			"connector", c.exchange.Connector, "error", err)
		return lost(c.exchange.Deployment, err)
	}
}
