// Package owner counts requests for all edges of a cluster: all requests of a deployment with a limit
// enter its queue at one edge, its owner. All requests of an account with limits enter at the account's owner.
//
// The owner is the first edge that has a report and does not drain, in an order that differs between deployments and
// accounts. All edges have the same list of edges, so they agree. A request enters there over a stream, and has its
// permit until the stream ends. If the stream is lost, a running request continues without being counted, and a waiting
// one enters again. An edge that does not answer is skipped for a while, and the next edge of the order is the owner.
// After a change of the owner, the requests of the former owner may therefore run in addition to those of the new one.
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
	// answerTimeout is how long an owner may take to answer an enter, with a permit or the message that
	// the request waits.
	answerTimeout = 500 * time.Millisecond
	// silentTimeout is how long an owner may send nothing while the request waits.
	silentTimeout = time.Second
	// skipTime is how long an edge is skipped after it has not answered, or has refused.
	skipTime = 5 * time.Second
	dialTime = 250 * time.Millisecond // the same if the edge has not dialed this one yet, as after a start
	// maxSilent is how many edges that do not answer a request tries.
	maxSilent = 2
)

var errSilent = errors.New("it does not answer")

// Options are the parameters of New.
type Options struct {
	Edge    string                                 // the name of this gateway
	Edges   func() []store.EdgeState               // of the cluster
	Open    func(edge string) (link.Stream, error) // opens a stream to another edge itself
	Suspect func(edge string)                      // called when another edge does not answer
	Queues  *queue.Queues                          // of this gateway
	Logger  *slog.Logger
}

// Owners finds the owners of queues and limits, and enters there. It is safe for concurrent use.
type Owners struct {
	Options
	skips logs.Sampler[string] // logs edges that are skipped

	mu      sync.Mutex
	skipped map[string]time.Time // edges, and until when they are skipped
}

// New returns owners. [Owners.Enter] is for [queue.Queues.Share].
func New(o Options) *Owners { return &Owners{Options: o, skipped: make(map[string]time.Time)} }

// Enter is [queue.Queues.EnterHere] at the owner. Each edge that does not answer delays it by up to answerTimeout.
func (o *Owners) Enter(ctx context.Context, r queue.Request) (queue.Permit, error) {
	began, wait, need := time.Now(), r.Bounds.Wait, r.Need.Wait
	owner := o.first(r.Name)
	for silent := 0; owner != o.Edge; {
		permit, err := o.enterThere(ctx, owner, r)
		switch {
		case err == nil, isRefusal(err):
			return permit, err
		case ctx.Err() != nil:
			return queue.Permit{}, context.Cause(ctx)
		case errors.Is(err, errSilent):
			silent++
			o.Suspect(owner) // so that the request is not sent there either
		}
		next := o.skip(owner, r.Name, err)
		if silent == maxSilent {
			next = o.Edge
		}
		o.skips.Log(o.Logger, slog.LevelWarn, owner, time.Now(),
			"counting requests at another edge, or here alone, as the edge that counts them for all cannot be reached",
			"edge", owner, "instead", next, "account_id", r.Account, "deployment", r.Deployment, "error", err)
		left := wait + need - time.Since(began)
		r.Bounds.Wait, r.Need.Wait = min(wait, left), min(need, left)
		owner = next
	}
	return o.Queues.EnterHere(ctx, r)
}

// first returns the owner: this edge if there is no other one.
func (o *Owners) first(n queue.Name) string {
	owner, first, now := o.Edge, uint64(0), time.Now()
	key, edges := n.Account+"\x00"+n.Deployment, o.Edges()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range edges {
		rank := tunnel.Rank(key, e.Name)
		if canOwn(e) && rank > first && !now.Before(o.skipped[e.Name]) {
			owner, first = e.Name, rank
		}
	}
	return owner
}

// canOwn reports whether an edge counts requests of other edges.
func canOwn(e store.EdgeState) bool { return e.Report != nil && !e.Draining }

// skip skips an edge for a while because of an error, and returns the owner without it.
func (o *Owners) skip(edge string, n queue.Name, err error) (owner string) {
	now, pause := time.Now(), skipTime
	if errors.Is(err, tunnel.ErrNoPeer) {
		pause = dialTime
	}
	o.mu.Lock()
	maps.DeleteFunc(o.skipped, func(_ string, until time.Time) bool { return !now.Before(until) })
	o.skipped[edge] = now.Add(pause)
	o.mu.Unlock()
	return o.first(n)
}

// isRefusal reports whether an error is the owner's decision.
func isRefusal(err error) bool {
	_, limited := errors.AsType[*limits.Refusal](err)
	return limited || errors.Is(err, queue.ErrFull) || errors.Is(err, queue.ErrTimeout)
}
