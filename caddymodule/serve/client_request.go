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
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/panics"
)

// clientRequest is Translator's state of a request.
type clientRequest struct {
	*Translator
	*Backend
	modelRequest // for Router, if the request is for a model

	ctx      context.Context // done when the client disconnects or the key is revoked
	running  bool            // counted as in flight
	reserved reservations
	kept     int64  // bytes of kept responses that the request refers to
	leave    func() // ends the turn of awaitTurn; nil: the request has none

	body []byte // of the client, if the deployment has a fallback
	held int64  // bytes of the first decoding, which its stream uses while the body is decoded for the fallback

	repeated   bool               // sent again, with a limit of the answer that fits
	noEffort   bool               // sent again without reasoning effort, which the model has rejected
	result     *dialect.Error     // of the last answer; nil if it was sent
	info       dialect.AnswerInfo // of the last answer
	streaming  bool               // the answer is a stream
	translated bool               // the answer is not a stream, and exchange has its usage
	overflow   int64              // tokens of the prompt that the model server refused as too long, if it named them

	estimated sync.Once
	tokens    int // estimated, of the prompt
}

// droppedParts is the header that lists what was dropped of a request, see [dialect.Call].
const droppedParts = "X-Postern-Dropped"

// errNoRouter is the result of a request that no Router has received.
var errNoRouter = dialect.Internal("no model_route follows model_dialect in this route of the gateway's configuration")

// forward reads the request and passes it to the next handlers, with the fallback of its deployment if
// that is necessary. The caller writes the error to the client.
func (c *clientRequest) forward(w http.ResponseWriter, r *http.Request, next Handler) *dialect.Error {
	if derr := c.read(r); derr != nil {
		return derr
	}
	derr := c.pass(w, r, next)
	if derr != nil && derr.Unserved && c.body != nil && c.exchange.attempts.waiting() {
		return c.fallBack(w, r, next, derr)
	}
	return derr
}

// pass passes the decoded request to the next handlers. Router calls receive with the answer.
func (c *clientRequest) pass(w http.ResponseWriter, r *http.Request, next Handler) *dialect.Error {
	if derr := c.fit(); derr != nil {
		return derr
	}
	c.fitAnswer()
	ex := c.exchange
	if ex.Streamed = c.call.Streamed(); ex.Streamed {
		if ex.Operation.Dialect.Estimates() {
			prompt := c.call.Prompt()
			go func() { // while the upstream processes the prompt
				defer panics.Recover(c.Logger, "estimating a prompt")
				c.estimate("", prompt)
			}()
		}
		c.answer.open(c.call.NewStream(), c.KeepAlive)
	}
	c.result, c.followUp = errNoRouter, nil
	if c.call.Safeguard() != nil {
		c.followUp = func() { c.checkCalls(r, next) }
	}
	of, _ := exchangeOf(r) // a judge's request has that of the answer that it judges
	c.modelRequest.receive, of.passed = c.receive, &c.modelRequest
	if err := next.ServeHTTP(w, r); err != nil {
		return c.failed(err)
	}
	return c.result
}

// receive sends the upstream's answer to the client. If it returns an error, the request was changed
// because of it, and must be sent again.
func (c *clientRequest) receive(response *http.Response) (retry *dialect.Error) {
	defer response.Body.Close()
	ex := c.exchange
	c.info = dialect.AnswerInfo{Wanted: ex.span.recording(), Effort: c.info.Effort, Tools: c.info.Tools}
	if body, ok := response.Body.(interface{ DecoderMemory() int64 }); ok &&
		c.reserved.reserveRequest(c.reserved.request+body.DecoderMemory()) != nil {
		c.result = dialect.MemoryFull() // for the decoder of a compressed answer
		return nil
	}
	derr := c.render(response)
	if derr != nil && c.streaming { // nothing was sent, so another stream sends the error, or the next answer
		c.streaming = false
		c.answer.open(c.call.NewStream(), c.KeepAlive)
	}
	c.overflowed(derr)
	derr, again := c.noRoom(derr)
	if again {
		return derr
	}
	switch c.call.Retry(derr) {
	case dialect.RetryWithoutEffort:
		c.noEffort = true
	case dialect.RetryWhole:
		c.unstreamed = true
	default:
		c.result = derr
		return nil
	}
	return derr
}

// read reads the request. Large requests wait for their turn to be decompressed and
// decoded.
func (c *clientRequest) read(r *http.Request) *dialect.Error {
	ex := c.exchange
	encoding, derr := contentEncoding(r.Header)
	if derr != nil {
		return derr
	}
	c.reserved.reservation = ex.reservation()
	defer c.endTurn()
	declared := bodyCost(min(max(r.ContentLength, 0), c.MaxBody), ex.costs().decoding)
	reserve := func(n int64) error { return c.reserved.reserveRequest(max(n, declared)) }
	body, derr := readBody(r, c.MaxBody, func(n int64) error {
		c.awaitLarge(n, largeWait)
		return reserve(n)
	})
	if derr != nil {
		return derr
	}
	if encoding != "" {
		if derr := c.awaitTurn(tooManyRequests); derr != nil {
			return derr
		}
		// Without a permit for a large body: answers keep theirs while they wait for a turn.
		if body, derr = decompress(body, encoding, c.MaxBody, reserve); derr != nil {
			return derr
		}
	}
	return c.decode(body)
}

// decode decodes the request's body.
func (c *clientRequest) decode(body []byte) *dialect.Error {
	ex := c.exchange
	defer c.endTurn()
	if len(body) > decodedAtOnce {
		if derr := c.awaitTurn(tooManyRequests); derr != nil {
			return derr
		}
	}
	c.size = int64(len(body))
	if c.reserved.reserveRequest(c.held+bodyCost(c.size, ex.costs().decoding)) != nil {
		return dialect.MemoryFull()
	}
	env := &dialect.Env{
		Context: c.ctx,
		Now:     time.Now, NewID: dialect.NewID, RequestID: ex.RequestID, SignatureKey: c.completions.signatureKey,
		Account: ex.Account, Sealer: c.completions.sealer, Gateway: c, Estimate: c.estimate,
		Info: &c.info, DefaultModel: ex.Key.DefaultModel(), Betas: c.header.Values("Anthropic-Beta"),
	}
	if ex.Operation.Dialect == dialect.Responses {
		env.Kept, env.NewID = c.keptView(), c.peers.NewID
	}
	var derr *dialect.Error
	c.call, derr = dialect.Decode(ex.Operation, body, env)
	if c.reserved.full {
		derr = dialect.MemoryFull()
	}
	if derr != nil {
		return c.orEnded(derr)
	}
	if c.reserved.request > requestCost { // smaller requests save too little
		_ = c.reserved.reserveRequest(bodyCost(c.size+c.kept, ex.costs().decoded)) // a smaller reservation always succeeds
	}
	if ex.Dropped = c.call.Dropped(); ex.Dropped != "" {
		c.answer.header(http.Header{droppedParts: {ex.Dropped}})
	}
	if c.deployment.Fallback != "" {
		c.body = body // the cost of a decoded request includes it
	}
	works, known := c.Observed.EffortWorks(&c.deployment, ex.client().Owner, c.info.Effort, c.info.Tools)
	if known && !works && c.call.DropEffort() {
		c.info.Effort = "" // the answer shows nothing about it
	}
	return nil
}

// orEnded returns derr. If the request was canceled and the client is still
// connected, it returns the error of the cancellation instead.
func (c *clientRequest) orEnded(derr *dialect.Error) *dialect.Error {
	if c.ctx.Err() != nil {
		if ended := c.broken(c.ctx.Err()); ended != nil {
			return ended
		}
	}
	return derr
}

// Admit implements dialect.Gateway.
func (c *clientRequest) Admit(model string) (_ compat.Options, derr *dialect.Error) {
	if c.running { // for the fallback
		return c.deployment.Options, nil
	}
	ex := c.exchange
	ex.Model = model
	d, ok := c.Store.Resolve(ex.Account, model, ex.Key.Scope())
	ex.Reason, derr = ex.check(d, ok)
	c.assign(d)
	return d.Options, derr
}

// assign makes a deployment serve the request.
func (c *clientRequest) assign(d store.Deployment) {
	ex := c.exchange
	if c.running {
		c.Observer.Running(ex, -1)
	}
	c.deployment, ex.Deployment = d, d.Name
	if c.running = d.Name != ""; c.running {
		c.Observer.Running(ex, 1)
	}
}

// Reserve implements dialect.Gateway. Kept responses that the request refers to wait for their turn, as
// bodies do.
func (c *clientRequest) Reserve(n int64) *dialect.Error {
	if c.kept += n; c.size+c.kept > c.MaxBody {
		return dialect.ReferencesTooLarge(c.MaxBody)
	}
	c.awaitLarge(c.size+c.kept, largeWait)
	if c.size+c.kept > decodedAtOnce {
		if derr := c.awaitTurn(tooManyRequests); derr != nil {
			return derr
		}
	}
	if c.reserved.reserveRequest(c.held+bodyCost(c.size+c.kept, c.exchange.costs().decoding)) != nil {
		return dialect.MemoryFull()
	}
	return nil
}

// Window implements dialect.Gateway.
func (c *clientRequest) Window() int {
	w, _ := c.window(c.exchange, &c.deployment, c.exchange.Connector)
	return w.Tokens
}

// registration returns the current registration of the request's deployment, false
// if it does not exist.
func (c *clientRequest) registration() (tokens.Registration, bool) {
	deployment, ok := c.Store.Deployment(c.exchange.Account, c.exchange.Deployment)
	return registration(deployment), ok
}

// estimate returns the estimated tokens of the prompt, computed once. If the prompt is
// nil or cannot be counted in time, the size of the request determines them.
func (c *clientRequest) estimate(_ string, p *tokens.Prompt) int {
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

// sample returns the request as a sample.
func (c *clientRequest) sample(r tokens.Registration, counted int64) sample {
	ex := c.exchange
	return sample{
		registration: r, key: ex.Key.ID(), call: c.call, size: c.size + c.kept, tokens: counted,
		memory: ex.reservation(),
	}
}

// failed returns the client's error for an error of the next handler.
func (c *clientRequest) failed(err error) *dialect.Error {
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
func (c *clientRequest) broken(err error) *dialect.Error {
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
