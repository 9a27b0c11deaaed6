package caddymodule

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
)

// completion is one request that the upstream answers: all but lists, counts
// and what is kept.
type completion struct {
	*Dialect
	exchange *exchange
	answer   *answer
	ctx      context.Context // ends when the client goes or the key is revoked
	call     dialect.Call
	size     int64 // of the request's body, in bytes
	kept     int64 // bytes of kept responses that the request refers to
	learner  *learner
	noEffort bool // the model has refused to be told how much to think

	counting sync.Once
	tokens   int // what the prompt is estimated to have
}

// serve reads the request, has the next handler fetch the answer, and renders
// it. The error that it returns is still to be told to the client.
func (c *completion) serve(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) *dialect.Error {
	if derr := c.decode(r); derr != nil {
		return derr
	}
	ex := c.exchange
	streamed := c.call.Streamed()
	ex.Streamed = streamed
	ex.Upstream = request{Path: ex.Operation.UpstreamPath(), Header: upstreamHeader(r.Header, streamed), Body: c.call.Body}
	if streamed {
		if ex.Operation.Kind == dialect.CreateMessage { // whose stream opens with it
			prompt := c.call.Prompt()
			go c.estimate("", prompt) // while the upstream reads the prompt too
		}
		c.answer.open(c.call.NewStream(), time.Duration(c.KeepAlive))
	}
	for {
		derr := c.fetch(w, r, next)
		switch c.call.Retry(derr) {
		case dialect.RetryWithoutEffort:
			c.noEffort = true
		case dialect.RetryWhole:
			ex.Upstream.Header, ex.Upstream.Body = upstreamHeader(r.Header, false), c.call.WholeBody
		default:
			return derr
		}
	}
}

// decode reads the request.
func (c *completion) decode(r *http.Request) *dialect.Error {
	open, err := c.app.store.val.get()
	if err != nil {
		return c.app.internal("opening its store", err)
	}
	c.learner = open.learner
	ex := c.exchange
	ex.held.reservation = open.memory.Open(ex.Account, ex.Key.ID())
	declared := ex.bodyCost(min(max(r.ContentLength, 0), c.MaxBody))
	body, derr := readBody(r, c.MaxBody, func(n int64) error { return ex.held.holdRequest(max(n, declared)) })
	if derr != nil {
		return derr
	}
	c.size = int64(len(body))
	if ex.held.holdRequest(ex.bodyCost(c.size)) != nil {
		return dialect.MemoryFull()
	}
	env := &dialect.Env{
		Context: c.ctx,
		Now:     time.Now, NewID: dialect.NewID, RequestID: ex.RequestID, SignatureKey: c.learner.signatureKey,
		Account: ex.Account, Sealer: c.learner.sealer, Gateway: c, Estimate: c.estimate, Dropped: c.dropped,
	}
	if ex.Operation.Dialect == dialect.Responses {
		env.Kept = c.keptView(c.learner, ex)
	}
	if c.call, derr = dialect.Decode(ex.Operation, body, env); derr != nil {
		return c.orEnded(derr)
	}
	if ex.held.request > requestCost { // else it is not worth a second look
		_ = ex.held.holdRequest(ex.decodedCost(c.size + c.kept)) // less than before always succeeds
	}
	if c.learner.efforts.any() {
		if of, ok := c.registration(); ok && c.learner.efforts.none(of) {
			c.call.DropEffort()
		}
	}
	return nil
}

// orEnded is an error of the request's reading, unless that failed because the
// request has ended: after that no error of it reaches the client.
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
	deployment, derr := c.exchange.find(c.learner.store)
	return deployment.Options, derr
}

// Hold implements dialect.Gateway.
func (c *completion) Hold(n int64) *dialect.Error {
	if c.kept += n; c.size+c.kept > c.MaxBody {
		return dialect.ReferencesTooLarge(c.MaxBody)
	}
	if c.exchange.held.holdRequest(c.exchange.bodyCost(c.size+c.kept)) != nil {
		return dialect.MemoryFull()
	}
	return nil
}

// dropped logs that an item of the request was left out.
func (c *completion) dropped(itemType string) {
	c.app.logger.Debug("leaving out an item of a request", "type", itemType, "dialect", string(c.exchange.Operation.Dialect))
}

// registration is the deployment that the request is for, as it is registered
// now; false if there is none.
func (c *completion) registration() (tokens.Registration, bool) {
	deployment, ok := c.learner.store.Deployment(c.exchange.Account, c.exchange.Model)
	return registration(deployment), ok
}

// estimate is how many tokens the prompt has, as far as is known.
func (c *completion) estimate(_ string, p *tokens.Prompt) int {
	c.counting.Do(func() {
		of, ok := c.registration()
		if !ok {
			return
		}
		var err error
		if c.tokens, err = c.countPrompt(c.ctx, of, p, estimateWait); err != nil {
			c.tokens = int(c.sizeInTokens())
		}
	})
	return c.tokens
}

// estimatePrompt estimates the tokens of a prompt whose request has ended. One that
// is large, or was not read, is estimated by its size: to count it costs more than
// the figure is worth.
func (c *completion) estimatePrompt() int64 {
	const worthCounting = 64 << 10 // bytes
	of, ok := c.registration()
	if prompt := c.call.Prompt(); ok && prompt != nil && c.size <= worthCounting {
		if n, err := c.countPrompt(context.WithoutCancel(c.ctx), of, prompt, estimateWait); err == nil {
			return int64(n)
		}
	}
	return c.sizeInTokens()
}

// sizeInTokens estimates a prompt's tokens by the size of its request.
func (c *completion) sizeInTokens() int64 {
	const bytesPerToken = 4
	return c.size / bytesPerToken
}

// book notes what the request cost, and has it learned from if the upstream
// said what its prompt was in tokens.
func (c *completion) book(u dialect.Usage) {
	if u.Estimated && u.PromptTokens == 0 {
		u.PromptTokens = c.estimatePrompt()
	}
	c.exchange.Usage = u
	if u.Estimated || u.PromptTokens <= 0 || c.exchange.Operation.Dialect == dialect.Chat && c.exchange.Operation.Kind != dialect.ChatCompletions {
		return
	}
	if of, ok := c.registration(); ok {
		held := c.learner.memory.Open(c.exchange.Account, c.exchange.Key.ID())
		c.learner.learn(lesson{of: of, call: c.call, size: c.size + c.kept, tokens: u.PromptTokens}, held)
	}
}

// fetch has the next handler get the upstream's answer, and renders it.
func (c *completion) fetch(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) *dialect.Error {
	ex := c.exchange
	if err := next.ServeHTTP(w, r); err != nil {
		return c.failed(err)
	}
	if ex.Response == nil {
		return dialect.Internal("no model_route follows model_dialect in this route of the gateway's configuration")
	}
	defer ex.Response.Body.Close()
	if body, ok := ex.Response.Body.(interface{ DecoderMemory() int64 }); ok && ex.held.holdRequest(ex.held.request+body.DecoderMemory()) != nil {
		return dialect.MemoryFull() // for what decodes a compressed answer
	}
	return c.render(ex.Response)
}

// failed says what the client is told of an error of the next handler. Errors
// of handlers that are not ours are rendered too: Caddy's own error handling
// knows no dialect, and logs the request with its headers.
func (c *completion) failed(err error) *dialect.Error {
	var derr *dialect.Error
	switch {
	case errors.As(err, &derr):
		return derr
	case c.ctx.Err() != nil:
		return c.broken(err)
	default:
		return c.app.foreign(err)
	}
}

// broken says what the client is told when the upstream's answer broke off:
// nothing if it is the client that went away.
func (c *completion) broken(err error) *dialect.Error {
	switch {
	case errors.Is(context.Cause(c.ctx), errKeyRevoked):
		return dialect.RevokedKey()
	case c.ctx.Err() != nil:
		c.answer.abandon()
		return nil
	default:
		c.app.logger.Warn("the upstream's answer broke off", "deployment", c.exchange.Deployment,
			"connector", c.exchange.Connector, "error", err)
		switch {
		case errors.Is(err, link.ErrTunnelLost):
			return dialect.TunnelLost(c.exchange.Deployment)
		case errors.Is(err, tunnel.ErrCompressed):
			return dialect.UpstreamCompressed(c.exchange.Deployment)
		}
		return dialect.UpstreamReset(c.exchange.Deployment)
	}
}

// upstreamHeader is the header of the upstream's request. Nothing of the
// client's goes through but trace context (W3C Trace Context §3).
func upstreamHeader(client http.Header, stream bool) http.Header {
	h := http.Header{"Content-Type": contentJSON, "Accept": contentJSON}
	if stream {
		h["Accept"] = contentEventStream
	}
	for _, name := range [...]string{"Traceparent", "Tracestate"} {
		if v := client[name]; v != nil {
			h[name] = v
		}
	}
	return h
}
