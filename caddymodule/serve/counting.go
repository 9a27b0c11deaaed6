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

// Counting costs some 300 ns of a processor for each byte, so that a few KB,
// compressed, are work for a second. Large prompts are counted by turns over the
// keys, on half of the processors: the rest is left for requests.
const (
	countedAtOnce = 16 << 10 // bytes of a request whose prompt waits for no turn
	maxToCount    = 1024     // that wait for their turn
	countWait     = time.Minute
	estimateWait  = time.Second // of what a client does not wait for
)

// newCountingQueue returns the queue of large prompts to be counted.
func newCountingQueue() *queue.Queues {
	return queue.New(func(queue.Name) int { return max(runtime.GOMAXPROCS(0)/2, 1) })
}

// countPrompt counts the tokens of a prompt when its turn comes, within a time.
// Its errors are those of [queue.Queues.Enter].
func (c *completion) countPrompt(ctx context.Context, of tokens.Registration, p *tokens.Prompt, wait time.Duration) (int, error) {
	if c.size+c.kept > countedAtOnce {
		place, err := c.learner.counting.Enter(ctx, queue.Name{}, c.exchange.Key.ID(), queue.Bounds{Length: maxToCount, Wait: wait})
		if err != nil {
			return 0, err
		}
		defer place.Leave()
	}
	return c.learner.calibration.Count(ctx, of, p), nil
}

// count answers how many tokens a request would have. It asks no upstream: the
// model may be busy, and clients ask often.
func (c *completion) count(r *http.Request) *dialect.Error {
	if derr := c.decode(r); derr != nil {
		return derr
	}
	n, err := c.countPrompt(c.ctx, registration(c.exchange.found), c.call.Prompt(), countWait)
	switch {
	case c.ctx.Err() != nil:
		return c.broken(c.ctx.Err())
	case err != nil:
		return dialect.Overloaded("The gateway has too many prompts to count. Send fewer at a time.")
	}
	_ = c.answer.whole(http.StatusOK, dialect.TokenCount(c.exchange.Operation, n)) // a failed write means that the client is gone
	return nil
}
