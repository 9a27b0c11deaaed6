// Package queue limits how many requests of a deployment run concurrently. Excess
// requests wait in a fair queue: round robin between the owners of keys, and between the keys of
// an owner, and first in, first out within a key.
//
// Without a limit, a request looks up its line and makes two atomic additions. It allocates no
// memory.
//
// In a cluster, requests enter the queues of one of its gateways: see [Queues.Share].
package queue

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/caddymodule/limits"
)

// The defaults of [Bounds].
const (
	DefaultLength = 64
	DefaultWait   = time.Minute
)

var (
	// ErrFull is returned if the queue is full.
	ErrFull = errors.New("the queue is full")
	// ErrTimeout is returned if the request has waited for the maximum time.
	ErrTimeout = errors.New("timed out in the queue")
)

// Name identifies a deployment; without a Deployment, a key of the account, or all its keys
// together.
type Name struct{ Account, Deployment, Key string }

// Bounds limit how many requests may wait for a deployment, and for how long.
type Bounds struct {
	Length int           // 0: DefaultLength; negative: no request may wait
	Wait   time.Duration // 0: DefaultWait
}

// Queues holds the queues of all deployments. It is safe for concurrent use.
type Queues struct {
	limit func(Name) int
	mu    sync.Mutex // guards lines
	lines map[Name]*line

	limited *limited // nil: there are no limits of keys and accounts
	// enter is EnterHere, or the argument of Share.
	enter func(context.Context, Request) (Permit, error)
	// In a cluster, sums are loaded again after restTime without requests.
	restTime time.Duration
}

// New returns empty queues. limit returns how many requests of a name may run
// concurrently, 0 for no limit. It is called for each request and must be fast. Call
// [Queues.Changed] when its result changes.
func New(limit func(Name) int) *Queues {
	q := &Queues{limit: limit, lines: make(map[Name]*line), restTime: math.MaxInt64}
	q.enter = q.EnterHere
	return q
}

// Share sets a function that returns the permits of requests with limits, from [Queues.EnterHere] or
// from another gateway. It must be called before the first Enter.
func (q *Queues) Share(enter func(context.Context, Request) (Permit, error)) {
	q.enter = func(ctx context.Context, r Request) (Permit, error) {
		if r.Deployment != "" && q.limit(r.Name) <= 0 {
			return q.EnterHere(ctx, r)
		}
		return enter(ctx, r)
	}
	q.restTime = time.Minute // another gateway may have counted meanwhile
}

// line returns the line of a deployment. It creates the line if necessary.
func (q *Queues) line(n Name) *line {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[n]
	if l == nil {
		l = &line{name: n, limit: q.limit}
		q.lines[n] = l
	}
	return l
}

// Enter waits until a request of the deployment may run. The caller must call
// [Permit.Leave] when the request has ended. Enter fails with [ErrFull],
// [ErrTimeout], or the cause of ctx's cancellation.
func (q *Queues) Enter(ctx context.Context, n Name, c fair.Client, b Bounds) (Permit, error) {
	return q.enter(ctx, Request{Name: n, Key: c.Key, Owner: c.Owner, Bounds: b.orDefaults()})
}

func (b Bounds) orDefaults() Bounds {
	return Bounds{cmp.Or(b.Length, DefaultLength), cmp.Or(b.Wait, DefaultWait)}
}

// Request is a request that enters the queue of a deployment, or that needs a permit of the limits of a
// key and its account.
type Request struct {
	Name  // without a Key
	Key   string
	Owner string // of the key
	Bounds
	Need // without a Deployment
}

// EnterHere is [Queues.Enter] or [Queues.EnterLimited] at this gateway.
func (q *Queues) EnterHere(ctx context.Context, r Request) (Permit, error) {
	if r.Deployment == "" {
		return q.enterLimited(ctx, r)
	}
	l := q.line(r.Name)
	waited, err := l.enter(ctx, &r)
	return Permit{line: l, waited: waited}, err
}

// Changed applies a changed limit to a deployment's queue.
func (q *Queues) Changed(n Name) {
	q.mu.Lock()
	l := q.lines[n]
	q.mu.Unlock()
	if l != nil {
		l.advance()
	}
}

// Remove removes a deployment whose limit is now 0. Its waiting requests are
// admitted and then fail because the deployment does not exist.
func (q *Queues) Remove(n Name) {
	q.Changed(n)
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.lines, n)
}

// Lengths calls f with the number of waiting requests, for each deployment that has
// a limit or waiting requests.
func (q *Queues) Lengths(f func(n Name, waiting int)) {
	q.mu.Lock()
	lines := slices.Collect(maps.Values(q.lines))
	q.mu.Unlock()
	for _, l := range lines {
		if waiting := int(l.waiting.Load()); waiting > 0 || q.limit(l.name) > 0 {
			f(l.name, waiting)
		}
	}
}

// Load returns how many requests of a deployment run and wait at this gateway.
func (q *Queues) Load(account, deployment string) (running, waiting int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.lines[Name{Account: account, Deployment: deployment}]; l != nil {
		running, waiting = l.running.Load(), l.waiting.Load()
	}
	return running, waiting
}

// Permit is a request's permission to run.
type Permit struct {
	line   *line
	waited bool
	leave  func(limits.Used) // instead of line
	usage  limits.Usage      // only of limits
}

// RemotePermit returns a permit of another gateway, which settle releases. waited and usage are the
// results of [Permit.Waited] and [Permit.Usage] there.
func RemotePermit(waited bool, usage limits.Usage, settle func(limits.Used)) Permit {
	return Permit{waited: waited, usage: usage, leave: settle}
}

// Waited reports whether the request had to wait.
func (p Permit) Waited() bool { return p.waited }

// Usage returns the states of the limits after the request's reservation. Only [Queues.Usage] adds sums.
func (p Permit) Usage() limits.Usage { return p.usage }

// Leave is [Permit.Settle] without usage.
func (p Permit) Leave() { p.Settle(limits.Used{}) }

// Settle releases the permit, and counts the usage of the request. It must be called exactly once.
func (p Permit) Settle(used limits.Used) {
	if p.leave != nil {
		p.leave(used)
		return
	}
	p.line.leave()
}
