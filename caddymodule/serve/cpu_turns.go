package serve

import (
	"context"
	"net/http"
	"runtime"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
	"github.com/postern-dev/postern/caddymodule/queue"
)

// working is the queue of long work on requests and answers: decoding, at about 10 ns per byte,
// and counting tokens, at about 20. It is fair between owners of keys, and between their keys, and may use half
// of the processors, because a few compressed KB can take a second. Small requests are not
// queued.
var working = queue.Name{Deployment: "working"}

const (
	decodedAtOnce = 128 << 10   // bytes of a body that is decoded without queueing
	countedAtOnce = 16 << 10    // bytes of a request whose prompt is counted without queueing
	maxWaiting    = 1024        // requests in each queue
	turnWait      = time.Minute // of a request
	estimateWait  = time.Second // of an estimate, which no client waits for
)

// newTurns returns the queues of long work and of large bodies.
func newTurns() *queue.Queues {
	return queue.New(func(n queue.Name) int {
		if n == buffering {
			return largeBodies
		}
		return max(runtime.GOMAXPROCS(0)/2, 1)
	})
}

// takeTurn waits for the request's turn. Its errors are those of
// [queue.Queues.Enter].
func (c *completion) takeTurn(ctx context.Context, kind queue.Name, wait time.Duration) (queue.Place, error) {
	return c.turns.Enter(ctx, kind, c.exchange.client(), queue.Bounds{Length: maxWaiting, Wait: wait})
}

// The client's errors if there are too many requests in the queue.
const (
	tooManyRequests = "The gateway has too many large requests to read. Send fewer at a time."
	tooManyAnswers  = "The gateway has too many large answers to translate. Send fewer requests at a time."
)

// awaitTurn waits for the turn to work on the request or its answer, until endTurn.
func (c *completion) awaitTurn(tooMany string) *dialect.Error {
	if c.inTurn != nil {
		return nil
	}
	place, err := c.takeTurn(c.ctx, working, turnWait)
	if err != nil {
		return c.orEnded(dialect.Overloaded(tooMany))
	}
	c.inTurn = place.Leave
	return nil
}

// endTurn leaves the turn of awaitTurn.
func (c *completion) endTurn() {
	if c.inTurn != nil {
		c.inTurn()
		c.inTurn = nil
	}
}

// countPrompt counts the tokens of a prompt. It waits up to wait for a turn, unless the
// request has one. Its errors are those of takeTurn.
func (c *completion) countPrompt(ctx context.Context, of tokens.Registration, p *tokens.Prompt,
	wait time.Duration) (int, error) {
	if c.size+c.kept > countedAtOnce && c.inTurn == nil {
		place, err := c.takeTurn(ctx, working, wait)
		if err != nil {
			return 0, err
		}
		defer place.Leave()
	}
	return c.learner.calibration.Count(ctx, of, c.exchange.Key.ID(), p), nil
}

// count returns the number of tokens of a request. It does not ask the upstream,
// because the model may be busy and clients ask often.
func (c *completion) count(r *http.Request) ([]byte, *dialect.Error) {
	if derr := c.read(r); derr != nil {
		return nil, derr
	}
	n, err := c.countPrompt(c.ctx, registration(c.exchange.found), c.call.Prompt(), turnWait)
	if err != nil || c.ctx.Err() != nil {
		return nil, c.orEnded(dialect.Overloaded("The gateway has too many prompts to count. Send fewer at a time."))
	}
	return dialect.TokenCount(c.exchange.Operation, n), nil
}
