// Package owner has the edges of a cluster count requests together: all requests of a deployment with
// a limit enter its queue at one edge, its owner, and so do those of an account with limits.
//
// The owner is the first edge that has a report and does not drain, in an order that differs between
// deployments. All edges have the same list of edges, so they agree. A request enters there over a
// stream, and has its place as long as the stream lasts. If the stream ends, a request that runs goes
// on and is not counted, and one that waits enters again. An edge that does not answer is passed over
// for a while, and the next of the order is the owner. So after a change of the owner, as many
// requests as before may run in addition to those that the new owner counts.
package owner

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/queue"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/logs"
)

const (
	// answerTime is how long an owner may take to answer an enter: that it has a place, or that
	// the request waits.
	answerTime = 500 * time.Millisecond
	// silentTime is how long it may send nothing while the request waits.
	silentTime = time.Second
	// passTime is how long an edge is passed over that has not answered, or refuses.
	passTime = 5 * time.Second
	// mostSilent is how many edges a request waits for that do not answer.
	mostSilent = 2
)

var errSilent = errors.New("it does not answer")

// Options are the parameters of New.
type Options struct {
	Edge    string                                 // the name of this gateway
	Edges   func() []store.EdgeState               // of the cluster
	Open    func(edge string) (link.Stream, error) // opens a stream to another edge itself
	Suspect func(edge string)                      // is called when another edge does not answer
	Queues  *queue.Queues                          // of this gateway
	Logger  *slog.Logger
}

// Owners finds the owners of queues and limits, and enters there. It is safe for concurrent use.
type Owners struct {
	Options
	lost logs.Sampler[string] // logs edges that are passed over

	mu     sync.Mutex
	passed map[string]time.Time // edges that are passed over, until then
}

// New returns owners. Enter is for [queue.Queues.Share].
func New(o Options) *Owners { return &Owners{Options: o, passed: make(map[string]time.Time)} }

// Enter is [queue.Queues.EnterHere] at the owner. It takes up to answerTime longer for each edge that
// does not answer.
func (o *Owners) Enter(ctx context.Context, r queue.Request) (queue.Place, error) {
	began, wait, need := time.Now(), r.Bounds.Wait, r.Need.Wait
	owner := o.first(r.Name)
	for silent := 0; owner != o.Edge; {
		place, err := o.enterAt(ctx, owner, r)
		switch {
		case err == nil, isRefusal(err):
			return place, err
		case ctx.Err() != nil:
			return queue.Place{}, context.Cause(ctx)
		case errors.Is(err, errSilent):
			silent++
			o.Suspect(owner) // the request must not wait there for its answer either
		}
		next := o.pass(owner, r.Name)
		if silent == mostSilent {
			next = o.Edge
		}
		o.lost.Log(o.Logger, slog.LevelWarn, owner, time.Now(),
			"counting requests at another edge, or here alone, as the edge that counts them for all cannot be reached",
			"edge", owner, "instead", next, "account_id", r.Account, "deployment", r.Deployment, "error", err)
		left := wait + need - time.Since(began)
		r.Bounds.Wait, r.Need.Wait = min(wait, left), min(need, left)
		owner = next
	}
	return o.Queues.EnterHere(ctx, r)
}

// first returns the owner, this edge if there is no other one.
func (o *Owners) first(n queue.Name) string {
	owner, first, now := o.Edge, uint64(0), time.Now()
	key, edges := n.Account+"\x00"+n.Deployment, o.Edges()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range edges {
		rank := tunnel.Rank(key, e.Name)
		if counts(e) && rank > first && !now.Before(o.passed[e.Name]) {
			owner, first = e.Name, rank
		}
	}
	return owner
}

// counts reports whether an edge counts requests of other edges.
func counts(e store.EdgeState) bool { return e.Report != nil && !e.Draining }

// pass passes over an edge for a while, and returns the owner without it.
func (o *Owners) pass(edge string, n queue.Name) (owner string) {
	now := time.Now()
	o.mu.Lock()
	maps.DeleteFunc(o.passed, func(_ string, until time.Time) bool { return !now.Before(until) })
	o.passed[edge] = now.Add(passTime)
	o.mu.Unlock()
	return o.first(n)
}

// isRefusal reports whether an error is the owner's decision.
func isRefusal(err error) bool {
	_, limited := errors.AsType[*limits.Refusal](err)
	return limited || errors.Is(err, queue.ErrFull) || errors.Is(err, queue.ErrTimeout)
}
