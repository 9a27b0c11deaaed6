package observed

import (
	"context"
	"errors"
	"time"
)

const (
	measureTime  = time.Minute // of a measurement
	measureTries = 3           // of a day, if requests end them
)

// errRequested ends a measurement.
var errRequested = errors.New("a request has come")

// measuring is a measurement that is due until it has a result.
type measuring struct {
	tries int
	stop  context.CancelCauseFunc // of the running one; nil: none runs
}

// measureLater makes a measurement due, at most once a day. The caller holds the lock.
func (t *Table) measureLater(o *route, now time.Time) {
	d, _ := t.Deployment(o.name.Account, o.name.Deployment)
	if t.measurings[o] == nil && now.Sub(o.due) >= lifetime && d.Options.ContextWindow == 0 {
		o.due = now
		t.measurings[o] = &measuring{}
	}
}

// measureIdle begins the measurements that are due, if their model servers run nothing. The caller holds no lock.
func (t *Table) measureIdle() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for o, m := range t.measurings {
		if t.routes[o.name] != o { // the deployment has changed
			delete(t.measurings, o)
		} else if m.stop == nil && t.idle(o) {
			m.tries++
			o.waits.running++
			ctx, cancel := context.WithTimeout(context.Background(), measureTime)
			ctx, m.stop = context.WithCancelCause(ctx)
			t.running.Go(func() {
				defer cancel()
				t.measure(ctx, o, m)
			})
		}
	}
}

// measure measures the window of a route.
func (t *Table) measure(ctx context.Context, o *route, m *measuring) {
	defer func() { // after a panic, too
		t.mu.Lock()
		defer t.mu.Unlock()
		o.waits.running--
		if m.stop = nil; !errors.Is(context.Cause(ctx), errRequested) || m.tries == measureTries {
			delete(t.measurings, o)
		}
	}()
	if d, ok := t.Deployment(o.name.Account, o.name.Deployment); ok {
		t.Measure(ctx, d, o.name.connector)
	}
}

// idle reports whether the model server of a route can be reached, and runs no request. The caller holds the lock.
func (t *Table) idle(o *route) bool {
	at, ok := t.current(o.name)
	for n, other := range t.routes {
		ok = ok && (other.waits.running == 0 || !t.shares(n, o.name, at.Upstream))
	}
	return ok && at.State.Reachable()
}

// shares reports whether a route has the connector of another one, and this upstream. The caller holds the lock.
func (t *Table) shares(n, other name, upstream string) bool {
	if n.connector != other.connector {
		return false
	}
	at, _ := t.current(n)
	return at.Upstream == upstream
}

// interrupt ends the measurements of the model server of a route. The caller holds the lock.
func (t *Table) interrupt(o *route) {
	for other, m := range t.measurings {
		if at, _ := t.current(other.name); m.stop != nil && t.shares(o.name, other.name, at.Upstream) {
			m.stop(errRequested)
		}
	}
}

// Close ends the measurements. No others may begin.
func (t *Table) Close() {
	t.mu.Lock()
	for _, m := range t.measurings {
		if m.stop != nil {
			m.stop(context.Canceled)
		}
	}
	t.mu.Unlock()
	t.running.Wait()
}
