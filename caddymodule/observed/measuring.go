package observed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// measureTries is how often a measurement begins in a day: requests end it.
const measureTries = 3

// errRequested ends a measurement.
var errRequested = fmt.Errorf("a request for the model server has come: %w", context.Canceled)

// measuring is the measurement of a route's window.
type measuring struct {
	due   time.Time // when the last one became due
	tries int       // that are left
	stop  context.CancelCauseFunc
}

// measureLater makes a measurement due, at most once a day. It begins when the model server runs nothing. The caller
// holds the lock.
func (t *Table) measureLater(o *route, now time.Time) {
	if m := &o.measuring; now.Sub(m.due) >= lifetime {
		m.due, m.tries = now, measureTries
		t.due[o] = true
	}
	t.measureIdle(o.id.connector)
}

// measureIdle begins the measurements that are due through a connector, if their model servers run nothing. In a
// cluster, an edge without a tunnel to the connector leaves that to those with one. The caller holds the lock.
func (t *Table) measureIdle(connector string) {
	var busy map[string]bool // upstreams; nil: not known
	for o := range t.due {
		if o.id.connector != connector {
			continue
		}
		if busy == nil {
			busy = t.busy(connector)
		}
		d, _ := t.Deployment(o.id.Account, o.id.Deployment)
		switch at, ok := t.current(o.id); {
		case t.routes[o.id] != o, o.measuring.tries == 0, o.window.holds(at.Since, t.now()):
			delete(t.due, o)
		case ok && at.State.Reachable() && !busy[at.Upstream]:
			busy[at.Upstream] = true
			o.measuring.tries--
			o.waits.running++
			ctx, stop := context.WithCancelCause(context.Background())
			o.measuring.stop = stop
			t.running.Go(func() { t.measure(ctx, o, d) })
		}
	}
}

// measure measures the window of a route.
func (t *Table) measure(ctx context.Context, o *route, d store.Deployment) {
	again := false
	defer func() { // after a panic, too
		t.mu.Lock()
		defer t.mu.Unlock()
		o.waits.running--
		if !again && !errors.Is(context.Cause(ctx), errRequested) {
			delete(t.due, o)
		}
		o.measuring.stop(nil)
	}()
	again = t.Measure(ctx, d, o.id.connector)
}

// busy returns the upstreams of a connector that run requests. The caller holds the lock.
func (t *Table) busy(connector string) map[string]bool {
	busy := make(map[string]bool)
	for n, o := range t.routes {
		if n.connector == connector && o.waits.running > 0 {
			at, _ := t.current(n)
			busy[at.Upstream] = true
		}
	}
	return busy
}

// interrupt ends the measurements of the model server of a route. The caller holds the lock.
func (t *Table) interrupt(n routeID) {
	for o := range t.due {
		if o.id.connector != n.connector || o.measuring.stop == nil {
			continue
		}
		at, _ := t.current(o.id)
		if own, _ := t.current(n); own.Upstream == at.Upstream {
			o.measuring.stop(errRequested)
		}
	}
}

// Close ends the measurements. There must be no requests.
func (t *Table) Close() {
	t.mu.Lock()
	for o := range t.due {
		if o.measuring.stop != nil {
			o.measuring.stop(context.Canceled)
		}
	}
	clear(t.due)
	t.mu.Unlock()
	t.running.Wait()
}
