package agent

import (
	"context"
	"errors"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/panics"
	"github.com/postern-dev/postern/connector/wait"
)

// instance is the connector with one configuration, and its tunnels. A reload starts a second instance, which takes
// over.
type instance struct {
	*Agent
	config *configuration

	mu    sync.Mutex  // guards the fields up to live
	legs  []*leg      // at least one
	edges []link.Edge // of the cluster, as one of them has sent them last
	live  []*session  // tunnels to edges

	hellos  chan struct{} // of capacity 1; full while a hello awaits its answer
	tunnels sync.WaitGroup
	running sync.WaitGroup // legs

	wasOnline atomic.Bool // a gateway has accepted the token before
	yields    atomic.Bool // a second instance takes over
	retired   atomic.Bool // it has taken over: no leg dials again

	process      context.Context // of Run
	ctx          context.Context // ends with process, or by end
	online       chan struct{}   // closed when the first tunnel is up
	closeOnline  func()          // once
	yielded      chan struct{}   // closed when a second instance has replaced a tunnel, or an error has ended all
	closeYielded func()          // once
	settled      chan struct{}   // closed when no leg sends another hello
	done         chan struct{}   // closed when all tunnels have ended
	end          context.CancelCauseFunc
}

func (a *Agent) newInstance(c *configuration) *instance {
	i := &instance{
		Agent: a, config: c, hellos: make(chan struct{}, 1),
		online: make(chan struct{}), yielded: make(chan struct{}), settled: make(chan struct{}), done: make(chan struct{}),
	}
	i.closeOnline = sync.OnceFunc(func() { close(i.online) })
	i.closeYielded = sync.OnceFunc(func() { close(i.yielded) })
	i.newLeg(mathrand.Float64)
	return i
}

// start keeps the tunnels up until ctx ends, or i.end is called.
func (i *instance) start(ctx context.Context) {
	i.process = ctx
	i.ctx, i.end = context.WithCancelCause(ctx)
	i.runLeg(i.legs[0], 0)
	go func() {
		defer close(i.done)
		i.running.Wait()
		i.end(nil)
		close(i.settled)
		i.tunnels.Wait()
		i.stop()
	}()
}

// runLeg runs a leg after a pause. An error ends all legs.
func (i *instance) runLeg(l *leg, pause time.Duration) {
	i.running.Go(func() {
		if wait.For(i.ctx, pause) != nil {
			return
		}
		if err := panics.Do(i.Logger, "keeping a tunnel up", func() error { return l.run(i.ctx) }); err != nil {
			i.end(err)
			i.closeYielded()
		}
	})
}

// stop enters the last state of all legs.
func (i *instance) stop() {
	var problem *Problem
	if fatal, ok := errors.AsType[*FatalError](context.Cause(i.ctx)); ok {
		problem = &fatal.Problem
	}
	for _, l := range i.allLegs() {
		l.enter(StateStopped, problem)
	}
}
