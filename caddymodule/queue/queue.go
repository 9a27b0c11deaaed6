// Package queue limits how many requests of a deployment run concurrently. Excess
// requests wait in a [fair.Line].
package queue

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
)

// The defaults of [Bounds].
const (
	DefaultLength = 64
	DefaultWait   = time.Minute
)

// Name identifies a deployment.
type Name struct{ Account, Deployment string }

// Bounds limit how many requests may wait for a deployment, and for how long.
type Bounds struct {
	Length int           // 0: DefaultLength; negative: no request may wait
	Wait   time.Duration // 0: DefaultWait
}

// OrDefaults returns the bounds with defaults for zero values.
func (b Bounds) OrDefaults() Bounds {
	return Bounds{cmp.Or(b.Length, DefaultLength), cmp.Or(b.Wait, DefaultWait)}
}

// Queues holds the queues of all deployments. It is safe for concurrent use.
type Queues struct {
	limit func(Name) int
	mu    sync.Mutex // guards lines
	lines map[Name]*fair.Line
}

// New returns empty queues. limit returns how many requests of a name may run
// concurrently, 0 for no limit. It is called for each request and must be fast. Call
// [Queues.Changed] when its result changes.
func New(limit func(Name) int) *Queues {
	return &Queues{limit: limit, lines: make(map[Name]*fair.Line)}
}

// line returns the line of a deployment. It creates the line if necessary.
func (q *Queues) line(n Name) *fair.Line {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[n]
	if l == nil {
		l = fair.NewLine(func() int { return q.limit(n) })
		q.lines[n] = l
	}
	return l
}

// Enter waits until a request of the deployment may run. The caller must call
// [Permit.Leave] when the request has ended. Enter fails as [fair.Line.Enter] does.
func (q *Queues) Enter(ctx context.Context, n Name, c fair.Client, b Bounds) (Permit, error) {
	b, l := b.OrDefaults(), q.line(n)
	waited, err := l.Enter(ctx, c, b.Length, b.Wait)
	return Permit{line: l, waited: waited}, err
}

// Changed applies a changed limit to a deployment's queue.
func (q *Queues) Changed(n Name) {
	q.mu.Lock()
	l := q.lines[n]
	q.mu.Unlock()
	if l != nil {
		l.Advance()
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
	lengths := make(map[Name]int, len(q.lines))
	for n, l := range q.lines {
		lengths[n] = int(l.Waiting())
	}
	q.mu.Unlock()
	for n, waiting := range lengths {
		if waiting > 0 || q.limit(n) > 0 {
			f(n, waiting)
		}
	}
}

// Load returns how many requests of a deployment run and wait at this gateway.
func (q *Queues) Load(account, deployment string) (running, waiting int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.lines[Name{Account: account, Deployment: deployment}]; l != nil {
		running, waiting = l.Running(), l.Waiting()
	}
	return running, waiting
}

// Permit is a request's permission to run.
type Permit struct {
	line   *fair.Line
	waited bool
}

// Waited reports whether the request had to wait.
func (p Permit) Waited() bool { return p.waited }

// Leave releases the permit. It must be called exactly once.
func (p Permit) Leave() { p.line.Leave() }
