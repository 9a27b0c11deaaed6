package agent

import (
	"context"
	"errors"
	"time"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/wait"
)

const (
	// Bounds of the pauses between attempts with a pending configuration, while the
	// tunnel of the current one is up.
	firstReloadPause = 10 * time.Second
	lastReloadPause  = 5 * time.Minute
)

// errNewer ends an attempt with an outdated configuration.
var errNewer = errors.New("there is a newer configuration")

// pending is a configuration that was loaded, but is not in use yet.
type pending struct {
	config  *configuration // nil: none
	pause   time.Duration  // before the next attempt; 0: not tried yet
	retryAt time.Time      // the next attempt, however often the leg wakes meanwhile
}

// Reload replaces the agent's configuration. An error names the field and the fix, and
// means that nothing has changed.
//
// Keys and addresses of upstreams change at once. Any other change needs a new tunnel: once
// it is connected, the old one is drained, and no request is lost.
func (a *Agent) Reload(c config.Config) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	older := []*configuration{a.current}
	if a.pending.config != nil {
		older = append(older, a.pending.config)
	}
	next, err := a.newConfiguration(c, older...)
	if err != nil {
		return err
	}
	a.budget.Resize(c.MemoryBudget())
	if a.pending.config == nil && a.current.sameTunnel(next) {
		proxy := a.current.proxy
		proxy.Use(next.proxy.Upstreams())
		next.proxy, a.current = proxy, next
		a.prober.UpstreamsChanged()
		a.Logger.Info("configuration reloaded", "tunnel", "kept")
		return nil
	}
	a.Logger.Info("configuration reloaded", "tunnel", "renewing")
	a.pending = pending{config: next}
	for _, l := range a.legs {
		wait.Wake(l.wake, struct{}{})
	}
	return nil
}

// next returns the pending configuration.
func (a *Agent) next() pending {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pending
}

// adopt makes a working configuration the current one. The calling leg has a tunnel with it;
// the other legs follow.
func (l *leg) adopt(next *configuration) {
	defer l.wakeOthers()
	l.mu.Lock()
	defer l.mu.Unlock()
	if next == l.current {
		return // another leg has done it
	}
	if !next.sameDestination(l.current) {
		l.edges = link.Edges{}
		for _, other := range l.legs {
			other.target, other.failed = link.Edge{}, false
		}
	}
	l.current = next
	if l.pending.config == next {
		l.pending = pending{}
	}
	l.retry.reset()
	l.prober.UpstreamsChanged()
}

// putOff sets the pause before the next attempt with a configuration that failed. It drops a
// configuration that the gateway has refused: another attempt would be refused, too, and could
// end the existing tunnel.
func (a *Agent) putOff(next *configuration, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pending.config != next {
		return
	}
	var deny link.Deny
	if errors.As(err, &deny) && !deny.Retry {
		a.pending = pending{}
		a.Logger.Error("the gateway refused the new configuration; the last working one stays",
			"server", next.quic.Server, "reason", reason(err), "fix", "correct `tunnel_token` and reload again")
		return
	}
	a.pending.pause = min(max(2*a.pending.pause, a.reloadPause), lastReloadPause)
	a.pending.retryAt = time.Now().Add(a.pending.pause)
	a.Logger.Error("failed to connect with the new configuration; the last working one stays",
		"server", next.quic.Server, "reason", reason(err), "retry_in", a.pending.pause.String(),
		"fix", "check `server` and `tunnel_token` and reload again")
}

// renew establishes a tunnel with the pending configuration. The old tunnel stays until the new
// one is up. The search of chooseCurrent runs in the pauses between attempts.
func (l *leg) renew(searching, ctx context.Context, s *session) *handover {
	// The end of the old tunnel ends the search: the leg then dials again.
	searching, stop := context.WithCancel(searching)
	defer stop()
	defer context.AfterFunc(s.conn.Context(), stop)()
	for {
		next := l.next()
		if next.config == nil {
			return nil
		}
		if time.Now().Before(next.retryAt) {
			pause, end := context.WithDeadline(searching, next.retryAt)
			h := l.chooseCurrent(s)(pause, ctx, s)
			end()
			if h != nil || searching.Err() != nil {
				return h
			}
		}
		h, err := l.succeed(searching, clearance{successor, s, ctx}, next.config,
			l.runners(next.config, l.targetOf(next.config))...)
		switch {
		case err == nil:
			l.adopt(next.config)
			return h
		case h != nil:
			l.putOff(next.config, err)
			h.err = errTrial
			return h
		case searching.Err() != nil:
			return nil
		}
		l.putOff(next.config, err)
	}
}
