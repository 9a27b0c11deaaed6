package serve

import (
	"context"
	"net/http"
	"runtime"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
	"github.com/postern-dev/postern/caddymodule/fair"
)

const (
	decodedAtOnce = 128 << 10   // bytes of a body that is decoded without queueing
	countedAtOnce = 16 << 10    // bytes of a request whose prompt is counted without queueing
	maxWaiting    = 1024        // requests in the queue
	turnWait      = time.Minute // of a request
	estimateWait  = time.Second // of an estimate, which no client waits for
)

// newCPULine returns the line of long work on requests and answers: decoding, at about 10 ns per byte,
// and counting tokens, at about 20. It may use half of the processors, because a few compressed KB can take a second.
// Small requests are not queued.
func newCPULine() *fair.Line {
	return fair.NewLine(func() int { return max(runtime.GOMAXPROCS(0)/2, 1) })
}

// The client's errors if there are too many requests in the queue.
const (
	tooManyRequests = "The gateway is busy reading large requests. Send fewer at a time."
	tooManyAnswers  = "The gateway is busy translating large answers. Send fewer requests at a time."
)

// awaitTurn waits for the turn to work on n bytes of the request or its answer, until endTurn.
func (c *clientRequest) awaitTurn(n int64, tooMany string) *dialect.Error {
	if n <= decodedAtOnce || c.leave != nil {
		return nil
	}
	if _, err := c.cpu.Enter(c.ctx, c.exchange.client(), maxWaiting, turnWait); err != nil {
		return c.orEnded(dialect.Overloaded(tooMany))
	}
	c.leave = c.cpu.Leave
	return nil
}

// endTurn ends the turn of awaitTurn.
func (c *clientRequest) endTurn() {
	if c.leave != nil {
		c.leave()
		c.leave = nil
	}
}

// countPrompt counts the tokens of a prompt. It waits up to wait for a turn, unless the
// request has one. Its errors are those of [fair.Line.Enter].
func (c *clientRequest) countPrompt(ctx context.Context, r tokens.Registration, p *tokens.Prompt,
	wait time.Duration,
) (int, error) {
	leave, err := c.enterCounting(ctx, wait)
	if err != nil {
		return 0, err
	}
	defer leave()
	return c.completions.calibration.Count(ctx, r, c.exchange.Key.ID(), p), nil
}

// enterCounting waits up to wait for a turn to count tokens, unless the request has one or is small. The turn ends
// with leave.
func (c *clientRequest) enterCounting(ctx context.Context, wait time.Duration) (leave func(), err error) {
	if c.size+c.kept <= countedAtOnce || c.leave != nil {
		return func() {}, nil
	}
	_, err = c.cpu.Enter(ctx, c.exchange.client(), maxWaiting, wait)
	return c.cpu.Leave, err
}

// countTokens returns the number of tokens of a request. It does not ask the upstream,
// because the model may be busy and clients ask often.
func (c *clientRequest) countTokens(r *http.Request) ([]byte, *dialect.Error) {
	if derr := c.read(r); derr != nil {
		return nil, derr
	}
	n, err := c.countPrompt(c.ctx, registration(c.deployment), c.call.Prompt(), turnWait)
	if err != nil || c.ctx.Err() != nil {
		return nil, c.orEnded(dialect.Overloaded("The gateway is busy counting prompts. Send fewer at a time."))
	}
	return dialect.TokenCount(c.exchange.Operation.Dialect, n), nil
}
