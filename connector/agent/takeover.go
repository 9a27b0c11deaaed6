package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/wait"
)

// takeoverLimit bounds the time until a new configuration has a tunnel.
const takeoverLimit = 30 * time.Second

var errStopping = errors.New("the connector is stopping")

// takeover replaces the running instance.
type takeover struct {
	next   *instance
	result chan<- error
}

// Reload replaces the agent's configuration, and returns when the new one is in use. An error names the
// cause and the fix, and means that nothing has changed. A second reload meanwhile waits.
//
// Keys and addresses of upstreams change at once. For any other change, a second instance connects with
// the new configuration. Once it is online, the first one is drained: in a cluster, when the second one is connected to
// its edges, or after 30 seconds. No request is lost.
func (a *Agent) Reload(c config.Config) error {
	a.reloading.Lock()
	defer a.reloading.Unlock()
	running := a.current.Load()
	next, err := a.newConfiguration(c, running.config)
	if err != nil {
		return err
	}
	if running.config.servesAs(next) {
		running.config.proxy.Use(next.proxy.Upstreams())
		a.prober.UpstreamsChanged()
		a.Logger.Info("configuration reloaded", "tunnel", "kept")
		return nil
	}
	result := make(chan error, 1)
	select {
	case a.takeovers <- takeover{a.newInstance(next), result}:
		return <-result
	case <-a.ended:
		return errStopping
	}
}

// takeOver starts a new instance and returns the one that runs on: the new one as soon as it is online, else the old
// one.
func (a *Agent) takeOver(ctx context.Context, old *instance, t takeover) *instance {
	next := t.next
	if a.Status().State != StateOnline { // maybe because of its configuration
		old.end(nil)
		<-old.settled // its tunnels may still carry answers
		a.drains.Go(func() { <-old.done })
		next.wasOnline.Store(old.wasOnline.Load() && old.config.token == next.config.token)
		next.start(ctx)
		a.setCurrent(next)
		t.result <- nil
		return next
	}
	a.Logger.Info("connecting with the new configuration")
	old.yields.Store(true)
	if next.config.sameServer(old.config) {
		next.edges, next.legs[0].edge = old.knownEdges()
	}
	next.start(ctx)
	next.useEdges(next.edges, 0)
	if !a.takesOver(ctx, old, next) {
		next.end(nil)
		<-next.done
		old.resume()
		t.result <- next.failure(ctx)
		return old
	}
	a.setCurrent(next)
	old.retired.Store(true)
	a.drains.Go(func() {
		old.handOver(next)
		<-old.done
	})
	t.result <- nil
	return next
}

// resume goes on after a failed takeover.
func (i *instance) resume() {
	i.yields.Store(false)
	for _, l := range i.allLegs() {
		wait.Wake(l.wake, struct{}{})
	}
}

// handOver ends an instance when the next one is connected to each of its edges. Until then, the other edges send
// requests to this one.
func (i *instance) handOver(next *instance) {
	defer i.end(nil)
	limit := time.NewTimer(i.takeoverLimit)
	defer limit.Stop()
	for next.config.sameServer(i.config) {
		changed, edges := i.Changed(), next.otherEdges(nil)
		if !slices.ContainsFunc(i.otherEdges(nil), func(name string) bool { return !slices.Contains(edges, name) }) {
			return
		}
		select {
		case <-changed:
		case <-limit.C:
			return
		case <-next.ctx.Done():
			return
		}
	}
}

// takesOver waits until an instance has a tunnel, and reports whether it replaces the old one.
func (a *Agent) takesOver(ctx context.Context, old, next *instance) bool {
	limit := time.NewTimer(a.takeoverLimit)
	defer limit.Stop()
	select {
	case <-next.online:
	case <-next.done:
	case <-limit.C:
	case <-old.yielded: // replaced by the new one, whose welcome is on its way
		select {
		case <-next.online:
		case <-next.done:
		case <-limit.C:
		}
	}
	// An old tunnel that was replaced is lost, even if others still carry answers.
	return isClosed(next.online) || isClosed(old.yielded) && ctx.Err() == nil
}

// isClosed reports whether a channel is closed on which nothing is sent.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// setCurrent makes an instance the current one.
func (a *Agent) setCurrent(next *instance) {
	a.current.Store(next)
	a.budget.Resize(next.config.quic.MaxMemory)
	a.prober.UpstreamsChanged()
	a.monitor.changed.Now()
	a.Logger.Info("configuration reloaded", "tunnel", "renewed")
}

// failure returns why the instance is not online.
func (i *instance) failure(ctx context.Context) error {
	if ctx.Err() != nil {
		return errStopping
	}
	i.monitor.mu.Lock()
	defer i.monitor.mu.Unlock()
	problem := cmp.Or(i.legs[0].phase.problem, &Problem{Reason: ErrNoWelcome.Error(), Fix: advice[endSilent]})
	return fmt.Errorf("%s: %s", i.config.quic.Server, problem)
}
