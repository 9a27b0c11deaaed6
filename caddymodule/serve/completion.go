package serve

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
	"github.com/postern-dev/postern/connector/panics"
)

// completion is one request with a prompt: a completion or a token count.
type completion struct {
	*Translator
	*Backend
	exchange *Exchange
	answer   *answer
	ctx      context.Context // done when the client disconnects or the key is revoked
	header   http.Header     // the client's
	call     dialect.Call
	size     int64  // of the request's body, in bytes
	kept     int64  // bytes of kept responses that the request refers to
	inTurn   func() // leaves the turn of awaitTurn; nil: the request is not in it

	answered   bool           // the upstream answered
	noEffort   bool           // sent again without reasoning effort, which the model rejected
	unstreamed bool           // sent again for an answer that is not a stream
	result     *dialect.Error // error of the last answer; nil if it was sent

	delivery   delivery
	streaming  bool // the answer is a stream
	translated bool // the answer is not a stream, and exchange has its usage

	estimated sync.Once
	tokens    int // estimated, of the prompt
}

// serve reads the request and passes it to the next handlers. Router calls receive.
// The caller writes the error to the client.
func (c *completion) serve(w http.ResponseWriter, r *http.Request, next Handler) *dialect.Error {
	if derr := c.read(r); derr != nil {
		return derr
	}
	ex := c.exchange
	ex.completion = c
	if ex.Streamed = c.call.Streamed(); ex.Streamed {
		if ex.Operation.Kind == dialect.CreateMessage { // its stream opens with the estimate
			prompt := c.call.Prompt()
			go func() { // while the upstream processes the prompt
				defer panics.Recover(c.Logger, "estimating a prompt")
				c.estimate("", prompt)
			}()
		}
		c.answer.open(c.call.NewStream(), c.KeepAlive)
	}
	c.delivery.ready = time.Now()
	if err := next.ServeHTTP(w, r); err != nil {
		return c.failed(err)
	}
	if !c.answered {
		return dialect.Internal("no model_route follows model_dialect in this route of the gateway's configuration")
	}
	return c.result
}

// receive sends the upstream's answer to the client. It reports whether the changed
// request must be sent again.
func (c *completion) receive(response *http.Response) (again bool) {
	defer response.Body.Close()
	ex := c.exchange
	c.answered, c.result = true, nil
	if body, ok := response.Body.(interface{ DecoderMemory() int64 }); ok &&
		ex.held.holdRequest(ex.held.request+body.DecoderMemory()) != nil {
		c.result = dialect.MemoryFull() // for the decoder of a compressed answer
		return false
	}
	derr := c.render(response)
	switch c.call.Retry(derr) {
	case dialect.RetryWithoutEffort:
		c.noEffort = true
	case dialect.RetryWhole:
		c.unstreamed = true
	default:
		c.result = derr
		return false
	}
	ex.tries.retry(c.ctx, ex, derr)
	return true
}

// read reads the request. Large requests wait for their turn to be decompressed and
// decoded.
func (c *completion) read(r *http.Request) *dialect.Error {
	ex := c.exchange
	encoding, derr := contentEncoding(r.Header)
	if derr != nil {
		return derr
	}
	ex.held.reservation = ex.reserve()
	defer c.endTurn()
	declared := bodyCost(min(max(r.ContentLength, 0), c.MaxBody), ex.costs().decoding)
	hold := func(n int64) error { return ex.held.holdRequest(max(n, declared)) }
	body, derr := readBody(r, c.MaxBody, func(n int64) error {
		c.makeRoom(n, largeWait)
		return hold(n)
	})
	if derr != nil {
		return derr
	}
	if encoding != "" || len(body) > decodedAtOnce {
		if derr := c.awaitTurn(tooManyRequests); derr != nil {
			return derr
		}
	}
	if encoding != "" {
		// Without a place: answers keep theirs while they wait for a turn.
		if body, derr = decompress(body, encoding, c.MaxBody, hold); derr != nil {
			return derr
		}
	}
	return c.decode(body)
}

// decode decodes the request's body.
func (c *completion) decode(body []byte) *dialect.Error {
	ex := c.exchange
	c.size = int64(len(body))
	if ex.held.holdRequest(bodyCost(c.size, ex.costs().decoding)) != nil {
		return dialect.MemoryFull()
	}
	env := &dialect.Env{
		Context: c.ctx,
		Now:     time.Now, NewID: dialect.NewID, RequestID: ex.RequestID, SignatureKey: c.learner.signatureKey,
		Account: ex.Account, Sealer: c.learner.sealer, Gateway: c, Estimate: c.estimate, Dropped: c.dropped,
		Info: &ex.tries.answer,
	}
	if ex.Operation.Dialect == dialect.Responses {
		env.Kept, env.NewID = c.keptView(c.ctx, ex), c.peers.NewID
	}
	var derr *dialect.Error
	c.call, derr = dialect.Decode(ex.Operation, body, env)
	if ex.held.full {
		derr = dialect.MemoryFull()
	}
	if derr != nil {
		return c.orEnded(derr)
	}
	if ex.held.request > requestCost { // smaller requests save too little
		_ = ex.held.holdRequest(bodyCost(c.size+c.kept, ex.costs().decoded)) // a smaller reservation always succeeds
	}
	if c.learner.refusesEffort(registration(ex.found)) {
		c.call.DropEffort()
	}
	return nil
}

// orEnded returns derr. If the request was canceled and the client is still
// connected, it returns the error of the cancellation instead.
func (c *completion) orEnded(derr *dialect.Error) *dialect.Error {
	if c.ctx.Err() != nil {
		if ended := c.broken(c.ctx.Err()); ended != nil {
			return ended
		}
	}
	return derr
}

// Admit implements dialect.Gateway.
func (c *completion) Admit(model string) (compat.Options, *dialect.Error) {
	c.exchange.Model = model
	derr := c.find(c.exchange)
	return c.exchange.found.Options, derr
}

// Hold implements dialect.Gateway. What a request refers to is received and decoded in turn, as a
// body is.
func (c *completion) Hold(n int64) *dialect.Error {
	if c.kept += n; c.size+c.kept > c.MaxBody {
		return dialect.ReferencesTooLarge(c.MaxBody)
	}
	c.makeRoom(c.size+c.kept, largeWait)
	if c.size+c.kept > decodedAtOnce {
		if derr := c.awaitTurn(tooManyRequests); derr != nil {
			return derr
		}
	}
	if c.exchange.held.holdRequest(bodyCost(c.size+c.kept, c.exchange.costs().decoding)) != nil {
		return dialect.MemoryFull()
	}
	return nil
}

// dropped logs that an item of the request was left out.
func (c *completion) dropped(itemType string) {
	c.Logger.Debug("leaving out an item of a request", "type", itemType, "dialect", string(c.exchange.Operation.Dialect))
}

// registration returns the current registration of the request's deployment, false
// if it does not exist.
func (c *completion) registration() (tokens.Registration, bool) {
	deployment, ok := c.Store.Deployment(c.exchange.Account, c.exchange.Model)
	return registration(deployment), ok
}

// estimate returns the estimated tokens of the prompt, computed once. If the prompt is
// nil or cannot be counted in time, the size of the request determines them.
func (c *completion) estimate(_ string, p *tokens.Prompt) int {
	c.estimated.Do(func() {
		c.tokens = int(c.size / dialect.BytesPerToken)
		if of, ok := c.registration(); ok && p != nil {
			if n, err := c.countPrompt(c.ctx, of, p, estimateWait); err == nil && c.ctx.Err() == nil {
				c.tokens = n
			}
		}
	})
	return c.tokens
}

// sample returns the request as a sample for the learner.
func (c *completion) sample(of tokens.Registration, counted int64) sample {
	held, key := c.exchange.reserve(), c.exchange.Key.ID()
	return sample{of: of, key: key, call: c.call, size: c.size + c.kept, tokens: counted, held: held}
}

// failed returns the client's error for an error of the next handler.
func (c *completion) failed(err error) *dialect.Error {
	var derr *dialect.Error
	switch {
	case errors.As(err, &derr):
		return derr
	case c.ctx.Err() != nil:
		return c.broken(err)
	default:
		return c.foreign(err)
	}
}

// broken returns the client's error for an answer that was interrupted, nil if the
// client disconnected.
func (c *completion) broken(err error) *dialect.Error {
	var cut *dialect.Error
	switch {
	case errors.As(context.Cause(c.ctx), &cut):
		return cut
	case c.ctx.Err() != nil:
		c.answer.abandon()
		return nil
	default:
		c.Logger.Warn("the upstream's answer broke off", "deployment", c.exchange.Deployment,
			"connector", c.exchange.Connector, "error", err)
		return lost(c.exchange.Deployment, err)
	}
}
