package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

const (
	// The pauses between attempts to reach a gateway with a new configuration,
	// beside the tunnel of the old one.
	reloadPause     = 10 * time.Second
	lastReloadPause = 5 * time.Minute
	// reloadDelay is for an attempt that something else came before.
	reloadDelay = time.Second
)

// errNewer ends an attempt with a configuration that another one has replaced.
var errNewer = errors.New("there is a newer configuration")

// reloading is what an agent needs to change its configuration while it runs.
type reloading struct {
	wake  chan struct{} // room for one: next is to be looked at
	first time.Duration // pause

	mu    sync.Mutex
	next  *Agent        // whose configuration is to be taken; nil: none
	pause time.Duration // before the last attempt; 0: next was not tried yet
	again *time.Timer   // that wakes; nil: there is none
}

// put makes next the configuration that waits. The caller holds mu.
func (r *reloading) put(next *Agent) {
	r.drop()
	r.next = next
}

// drop leaves nothing to wait. The caller holds mu.
func (r *reloading) drop() {
	r.next, r.pause = nil, 0
	if r.again != nil {
		r.again.Stop()
		r.again = nil
	}
}

// stop ends the attempts.
func (r *reloading) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.again != nil {
		r.again.Stop()
		r.again = nil
	}
}

// wakeAfter wakes after a pause, and not earlier. The caller holds mu.
func (a *Agent) wakeAfter(pause time.Duration) {
	if a.reload.again != nil {
		a.reload.again.Stop()
	}
	var timer *time.Timer
	timer = time.AfterFunc(pause, func() {
		a.reload.mu.Lock()
		if a.reload.again == timer {
			a.reload.again = nil
		}
		a.reload.mu.Unlock()
		a.wakeReload()
	})
	a.reload.again = timer
}

// remind makes sure that a configuration that waits is looked at, soon if
// nothing else is planned.
func (a *Agent) remind() {
	a.reload.mu.Lock()
	defer a.reload.mu.Unlock()
	if a.reload.next != nil && a.reload.again == nil {
		a.wakeAfter(reloadDelay)
	}
}

// untried tells whether a configuration waits that was not tried yet.
func (a *Agent) untried() bool {
	a.reload.mu.Lock()
	defer a.reload.mu.Unlock()
	return a.reload.next != nil && a.reload.pause == 0
}

// try makes a work by the configuration of next, if that still waits, until it is
// kept or given back. Whoever calls it is alone in changing the tunnel.
func (a *Agent) try(next *Agent) (good setup, ok bool) {
	a.reload.mu.Lock()
	defer a.reload.mu.Unlock()
	if a.reload.next != next {
		return setup{}, false
	}
	good = a.setup
	a.setup = next.setup
	a.rotation.last = renewal{} // what was before it is in both of them
	return good, true
}

// keep ends the trial of a configuration that works.
func (a *Agent) keep(next *Agent, good setup) {
	a.reload.mu.Lock()
	defer a.reload.mu.Unlock()
	a.setup = next.setup            // a reload may have changed it meanwhile
	a.rotation.last.apply(&a.setup) // not that of next, if a newer one waits
	if a.reload.next == next {
		a.reload.drop()
	}
	a.retry.reset()
	good.proxy.leaveTo(a.proxy)
	a.prober.look()
}

// giveBack ends the trial of a configuration that does not work, for now.
func (a *Agent) giveBack(next *Agent, good setup, err error) {
	a.reload.mu.Lock()
	a.rotation.last.apply(&good) // it may have come on the tunnel that was tried from
	a.setup = good
	a.reload.mu.Unlock()
	a.putOff(next, err)
}

// putOff lets a configuration that did not work wait for another attempt. One
// that the gateway has refused waits for nothing: the next attempt would be
// refused too, and may cost the tunnel that there is.
func (a *Agent) putOff(next *Agent, err error) {
	a.reload.mu.Lock()
	defer a.reload.mu.Unlock()
	if a.reload.next != next {
		return
	}
	var deny link.Deny
	if errors.As(err, &deny) && !deny.Retry {
		a.reload.drop()
		a.logger.Error("the gateway refuses the new configuration; the last one that worked stays",
			"server", next.dialer.server, "reason", reason(err), "fix", "correct `tunnel_token`, and reload again")
		return
	}
	a.reload.pause = min(max(2*a.reload.pause, a.reload.first), lastReloadPause)
	a.wakeAfter(a.reload.pause)
	a.logger.Error("cannot connect with the new configuration; the last one that worked stays",
		"server", next.dialer.server, "reason", reason(err), "retry_in", a.reload.pause.String(), "fix", "check `server` and `tunnel_token`, and reload again")
}

// enter makes a tunnel where there is none, by the configuration that has worked
// or, beside it, by the one that waits.
func (a *Agent) enter(ctx context.Context) (*session, error) {
	next, _ := a.waiting()
	switch {
	case next == nil:
		return a.greet(ctx)
	case !a.known: // nothing that has worked
		if good, ok := a.try(next); ok {
			a.keep(next, good)
		}
		return a.greet(ctx)
	}
	var own error // decides about the pause that follows
	untried := a.untried()
	if !untried {
		s, err := a.greet(ctx)
		if err == nil || ctx.Err() != nil {
			return s, err
		}
		own = err
	}
	s, err := a.greetBy(ctx, next)
	switch {
	case err == nil || ctx.Err() != nil:
		return s, err
	case untried:
		return a.greet(ctx)
	default:
		return nil, own
	}
}

// greet connects and says hello.
func (a *Agent) greet(ctx context.Context) (*session, error) {
	a.logger.Info("connecting", "server", a.dialer.server)
	s, answer, err := a.connect(ctx, atOnce)
	if err != nil {
		return nil, err
	}
	return s, s.begin(answer)
}

// greetBy is greet with a configuration that waits.
func (a *Agent) greetBy(ctx context.Context, next *Agent) (*session, error) {
	good, ok := a.try(next)
	if !ok {
		return nil, errNewer
	}
	s, err := a.greet(ctx)
	if err != nil {
		a.giveBack(next, good, err)
		return nil, err
	}
	a.keep(next, good)
	return s, nil
}
