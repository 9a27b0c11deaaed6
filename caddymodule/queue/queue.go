// Package queue limits how many requests of a deployment run concurrently. Excess
// requests wait in a fair queue: round robin between keys, and first in, first out
// within a key.
//
// Without a limit, a request costs two atomic additions. It takes no lock and
// allocates no memory.
//
// In a cluster, each deployment has an owner: all requests enter its queue there. See
// [Owners].
package queue

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"
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

// Name identifies a deployment.
type Name struct{ Account, Deployment string }

// Bounds limit how many requests may wait for a deployment, and for how long.
type Bounds struct {
	Length int           // 0: DefaultLength; negative: no request may wait
	Wait   time.Duration // 0: DefaultWait
}

// Queues holds the queues of all deployments. It is safe for concurrent use.
type Queues struct {
	limit func(Name) int
	mu    sync.Mutex // held while lines is replaced
	lines atomic.Pointer[map[Name]*line]

	shared *shared // nil: there is no cluster
}

// New returns empty queues. limit returns how many requests of a deployment may run
// concurrently, 0 for no limit. It is called for each request and must be fast. Call
// [Queues.Changed] when its result changes.
func New(limit func(Name) int) *Queues {
	q := &Queues{limit: limit}
	q.lines.Store(&map[Name]*line{})
	return q
}

// line returns the line of a deployment. It creates the line if necessary.
func (q *Queues) line(n Name) *line {
	if l, ok := (*q.lines.Load())[n]; ok {
		return l
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	old := *q.lines.Load()
	if l, ok := old[n]; ok {
		return l
	}
	l := &line{name: n, limit: q.limit}
	lines := maps.Clone(old)
	lines[n] = l
	q.lines.Store(&lines)
	return l
}

// Enter waits until a request of the deployment may run. The caller must call
// [Place.Leave] when the request has ended. Enter fails with [ErrFull],
// [ErrTimeout], or the cause of ctx's cancellation.
func (q *Queues) Enter(ctx context.Context, n Name, key string, b Bounds) (Place, error) {
	b.Length, b.Wait = cmp.Or(b.Length, DefaultLength), cmp.Or(b.Wait, DefaultWait)
	r := Request{Name: n, Key: key, Bounds: b}
	if q.shared != nil && q.limit(n) > 0 {
		return q.shared.enter(ctx, r)
	}
	return q.EnterHere(ctx, r)
}

// Request is a request that enters a queue.
type Request struct {
	Name
	Key string
	Bounds
	// Running means that it runs already: it counts, even above the limit.
	Running bool
}

// EnterHere is [Queues.Enter] for the queues of this gateway alone.
func (q *Queues) EnterHere(ctx context.Context, r Request) (Place, error) {
	l := q.line(r.Name)
	if r.Running || q.limit(r.Name) <= 0 {
		l.running.Add(1)
		return Place{line: l}, nil
	}
	w, err := l.join(r.Key, r.Length)
	if err != nil {
		return Place{}, err
	}
	if w != nil {
		if err := l.wait(ctx, w, r.Wait); err != nil {
			return Place{}, err
		}
	}
	return Place{line: l, waited: w != nil}, nil
}

// Changed applies a changed limit to a deployment's queue.
func (q *Queues) Changed(n Name) {
	if l, ok := (*q.lines.Load())[n]; ok {
		l.advance()
	}
}

// Remove removes a deployment whose limit is now 0. Its waiting requests are
// admitted and then fail because the deployment does not exist.
func (q *Queues) Remove(n Name) {
	q.Changed(n)
	q.mu.Lock()
	defer q.mu.Unlock()
	lines := maps.Clone(*q.lines.Load())
	delete(lines, n)
	q.lines.Store(&lines)
}

// Lengths calls f with the number of waiting requests, for each deployment that has
// a limit or waiting requests.
func (q *Queues) Lengths(f func(n Name, waiting int)) {
	for n, l := range *q.lines.Load() {
		if waiting := int(l.waiting.Load()); waiting > 0 || q.limit(n) > 0 {
			f(n, waiting)
		}
	}
}

// Place is a request's permission to run.
type Place struct {
	line   *line
	waited bool
	leave  func() // in a cluster, instead of line
}

// Waited reports whether the request had to wait.
func (p Place) Waited() bool { return p.waited }

// Leave releases the place. It must be called exactly once.
func (p Place) Leave() {
	if p.leave != nil {
		p.leave()
		return
	}
	p.line.running.Add(-1)
	if p.line.waiting.Load() > 0 {
		p.line.advance()
	}
}
