package agent

import (
	"context"
	"errors"
	"time"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/text"
)

const (
	// Bounds of the pauses between attempts with a pending configuration, while the
	// tunnel of the current one is up.
	firstReloadPause = 10 * time.Second
	lastReloadPause  = 5 * time.Minute
)

// errNewer ends an attempt with an outdated configuration.
var errNewer = errors.New("there is a newer configuration")

// pending is a configuration that was loaded and is not in use yet.
type pending struct {
	config *configuration // nil: none
	pause  time.Duration  // before the next attempt; 0: not tried yet
	at     time.Time      // of the next attempt; zero: now
}

// Reload replaces the agent's configuration. An error names the field and the fix, and
// means that nothing has changed.
//
// Keys and addresses of upstreams change at once. New upstreams and routes are sent to
// the gateway on the same tunnel. A new token, server, transport, number of requests
// or size of kept prompts needs a new tunnel: once it is connected, the old one is drained,
// and no request is lost.
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
		a.replace(next, a.current)
		a.Logger.Info("configuration reloaded", "tunnel", "kept")
		return nil
	}
	a.Logger.Info("configuration reloaded", "tunnel", "renewing")
	a.pending = pending{config: next}
	for _, l := range a.legs {
		trySend(l.wake, struct{}{})
	}
	return nil
}

// replace makes next the current configuration and keeps the tunnel. The caller holds mu.
func (a *Agent) replace(next, old *configuration) {
	upstreams := next.proxy.Upstreams()
	old.proxy.Upstreams().Retire(upstreams)
	old.proxy.Use(upstreams)
	taken := *next
	taken.proxy = old.proxy
	a.current = &taken
	a.prober.Look()
}

// next returns the pending configuration.
func (a *Agent) next() pending {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pending
}

// untilPending shortens the pause before the next attempt, so that it ends when the
// pending configuration is due.
func (l *leg) untilPending(pause time.Duration) time.Duration {
	p := l.due()
	if wait := time.Until(p.at); p.config != nil && (wait > 0 || p.pause == 0) {
		return max(min(pause, wait), 0)
	}
	return pause
}

// adopt makes a working configuration the current one. It has a new tunnel; the other legs
// follow.
func (l *leg) adopt(next *configuration) {
	defer l.wakeOthers()
	l.mu.Lock()
	defer l.mu.Unlock()
	if next == l.current {
		return // another leg was faster
	}
	l.current.proxy.Upstreams().Retire(next.proxy.Upstreams())
	if !next.samePlace(l.current) {
		l.edges = link.Edges{}
		for _, other := range l.legs {
			other.target, other.tries = link.Edge{}, 0
		}
	}
	l.current = next
	if l.pending.config == next {
		l.pending = pending{}
	}
	l.retry.reset()
	l.prober.Look()
}

// putOff schedules the next attempt for a configuration that failed. A configuration
// that the gateway refused is dropped: another attempt would be refused too, and could
// cost the existing tunnel.
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
	a.pending.at = time.Now().Add(a.pending.pause)
	a.Logger.Error("failed to connect with the new configuration; the last working one stays",
		"server", next.quic.Server, "reason", reason(err), "retry_in", a.pending.pause.String(), "fix", "check `server` and `tunnel_token` and reload again")
}

// trial connects with the pending configuration while no tunnel is up.
func (l *leg) trial(ctx context.Context, next *configuration) (*session, error) {
	if l.next().config != next {
		return nil, errNewer
	}
	s, err := l.connect(ctx, next)
	if err != nil {
		l.putOff(next, err)
		return nil, err
	}
	l.adopt(next)
	return s, nil
}

// update sends new upstreams and routes to the gateway on the existing tunnel, and
// reports whether it accepted them. Until the answer, old and new upstreams are served.
// The other tunnels get them, too, or are replaced later.
func (l *leg) update(s *session, next *configuration) bool {
	current := l.inUse()
	current.proxy.Use(current.proxy.Upstreams().With(next.proxy.Upstreams()))
	l.prober.Look()
	if !s.update(next) {
		return false
	}
	updated := []*session{s}
	for _, other := range l.open() {
		if other != s && other.config.proxy == s.config.proxy && other.update(next) {
			updated = append(updated, other)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pending.config == next { // otherwise a newer one is pending, which wakes the loop
		l.pending = pending{}
		l.replace(next, current)
		for _, s := range updated {
			s.applied.Store(l.current)
		}
	}
	return true
}

// update sends the upstreams and routes of a configuration, and reports whether the gateway
// accepted them.
func (s *session) update(next *configuration) bool {
	select {
	case <-s.updated: // late answer to an earlier update
	default:
	}
	if err := s.send(link.Update{Upstreams: next.hello.Upstreams, Routes: next.hello.Routes}); err != nil {
		return false
	}
	select {
	case u := <-s.updated:
		if u.Error != "" {
			s.leg.Logger.Warn("the gateway rejected the new configuration on this tunnel", "error", text.Short(u.Error))
			return false
		}
	case <-s.conn.Context().Done():
		return false
	case <-time.After(s.leg.pongTimeout):
		return false
	}
	return true
}
