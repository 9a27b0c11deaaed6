// Package queue bounds how many requests of a deployment run at a time. Those
// beyond the bound wait in a fair queue: one turn for each key, round robin,
// and first come first served within a key.
//
// A request that may run at once costs two additions to a counter, and neither
// a lock nor memory as long as its deployment has no bound.
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
	// ErrFull: as many requests wait as may.
	ErrFull = errors.New("too many requests wait already")
	// ErrTimeout: the request has waited as long as it may.
	ErrTimeout = errors.New("no turn came in time")
)

// Name is a deployment's.
type Name struct{ Account, Deployment string }

// Bounds are how many requests may wait for a deployment, and for how long.
type Bounds struct {
	Length int           // 0: DefaultLength; negative: none may wait
	Wait   time.Duration // 0: DefaultWait
}

// Queues has the queues of all deployments. Its methods may be called from any
// goroutine.
type Queues struct {
	limit func(Name) int
	mu    sync.Mutex // held while lines is replaced
	lines atomic.Pointer[map[Name]*line]
}

// New returns queues without a request. limit is how many requests of a
// deployment may run at a time, 0 for any number. It is asked each time, so it
// has to be fast; call [Queues.Changed] when it has another answer.
func New(limit func(Name) int) *Queues {
	q := &Queues{limit: limit}
	q.lines.Store(&map[Name]*line{})
	return q
}

// line returns the line of a deployment, making it if there is none.
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

// Enter returns when a request of the deployment may run, with the place that
// it then has: leave it when the request has ended. It fails with [ErrFull],
// [ErrTimeout], or the cause of ctx's end.
func (q *Queues) Enter(ctx context.Context, n Name, key string, b Bounds) (Place, error) {
	l := q.line(n)
	if q.limit(n) <= 0 {
		l.running.Add(1)
		return Place{line: l}, nil
	}
	w, err := l.join(key, cmp.Or(b.Length, DefaultLength))
	if err != nil {
		return Place{}, err
	}
	if w != nil {
		if err := l.wait(ctx, w, cmp.Or(b.Wait, DefaultWait)); err != nil {
			return Place{}, err
		}
	}
	return Place{line: l, waited: w != nil}, nil
}

// Changed has a deployment's queue look at its limit again.
func (q *Queues) Changed(n Name) {
	if l, ok := (*q.lines.Load())[n]; ok {
		l.advance()
	}
}

// Remove removes a deployment, of which the limit is 0 now: those that wait
// may run, and find that it is gone.
func (q *Queues) Remove(n Name) {
	q.Changed(n)
	q.mu.Lock()
	defer q.mu.Unlock()
	lines := maps.Clone(*q.lines.Load())
	delete(lines, n)
	q.lines.Store(&lines)
}

// Lengths calls f with the number of requests that wait, for each deployment
// that has a limit or some that wait.
func (q *Queues) Lengths(f func(n Name, waiting int)) {
	for n, l := range *q.lines.Load() {
		if waiting := int(l.waiting.Load()); waiting > 0 || q.limit(n) > 0 {
			f(n, waiting)
		}
	}
}

// Place is a request's permission to run. The zero value is none.
type Place struct {
	line   *line
	waited bool
}

// Held reports whether this is a permission.
func (p Place) Held() bool { return p.line != nil }

// Waited reports whether the request had to wait for it.
func (p Place) Waited() bool { return p.waited }

// Leave gives the place to the next request. It must be called once.
func (p Place) Leave() {
	if p.line == nil {
		return
	}
	p.line.running.Add(-1)
	if p.line.waiting.Load() > 0 {
		p.line.advance()
	}
}
