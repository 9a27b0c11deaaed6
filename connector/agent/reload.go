package agent

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

// Reload makes the agent work by another configuration. An error names the
// field and the fix, and means that nothing has changed.
//
// Keys, and the addresses of upstreams, change at once, and the gateway is told
// of other upstreams and routes on the same tunnel. Another token, server,
// transport or number of requests takes a new one: when the gateway can be reached with it, the old one
// is drained, and no request is lost.
func (a *Agent) Reload(c Config) error {
	a.reload.mu.Lock()
	defer a.reload.mu.Unlock()
	old := a.latest()
	next, err := New(c, Options{Logger: a.logger, Version: old.hello.Version, DrainTimeout: a.drainTimeout})
	if err != nil {
		return err
	}
	next.hello.Instance = old.hello.Instance
	next.proxy.inherit(old.proxy)
	next.proxy.budget.Resize(c.MemoryBudget())
	if old.sameTunnel(next) {
		old.proxy.replace(next.proxy)
		old.config = next.config
		a.prober.look()
		if old == a {
			a.logger.Info("configuration reloaded", "tunnel", "kept")
			return nil
		}
		next = old // which waits, and is tried now
	}
	a.logger.Info("configuration reloaded", "tunnel", "renewing")
	a.reload.put(next)
	a.wakeReload()
	return nil
}

// latest returns the agent with the newest configuration: a itself, or what it
// is about to become. The caller holds reload.mu.
func (a *Agent) latest() *Agent {
	if a.reload.next != nil {
		return a.reload.next
	}
	return a
}

// current returns the setup that the agent works by.
func (a *Agent) current() setup {
	a.reload.mu.Lock()
	defer a.reload.mu.Unlock()
	return a.setup
}

// sameTunnel tells whether the gateway would see no difference.
func (a *Agent) sameTunnel(b *Agent) bool {
	return a.samePeer(b) && reflect.DeepEqual(a.hello, b.hello)
}

func (a *Agent) wakeReload() {
	select {
	case a.reload.wake <- struct{}{}:
	default:
	}
}

// waiting returns the agent whose configuration waits to be taken, nil if there
// is none, and whether it leads to the same peer.
func (a *Agent) waiting() (next *Agent, same bool) {
	a.reload.mu.Lock()
	defer a.reload.mu.Unlock()
	next = a.reload.next
	return next, next != nil && a.samePeer(next)
}

// samePeer reports whether two configurations lead to the same gateway on the same
// way, as the same connector, on a tunnel for as many requests.
func (a *Agent) samePeer(b *Agent) bool {
	return a.config.TunnelToken == b.config.TunnelToken && a.config.Server == b.config.Server &&
		a.config.Transport == b.config.Transport && a.config.MaxRequests == b.config.MaxRequests
}

// update tells the gateway on its tunnel of other upstreams and routes. Until its
// answer there are the old upstreams as well as the new ones. It returns false
// when the gateway did not take it.
func (a *Agent) update(s *session, next *Agent) bool {
	a.proxy.add(next.proxy)
	select {
	case <-s.updated: // late, of an earlier one
	default:
	}
	if err := s.send(link.Update{Upstreams: next.hello.Upstreams, Routes: next.hello.Routes}); err != nil {
		return false
	}
	select {
	case u := <-s.updated:
		if u.Error != "" {
			a.logger.Warn("the gateway did not take the new configuration on this tunnel", "reason", legible(u.Error))
			return false
		}
	case <-s.conn.Context().Done():
		return false
	case <-time.After(a.pongTimeout):
		return false
	}
	a.reload.mu.Lock()
	defer a.reload.mu.Unlock()
	if a.reload.next != next { // a newer one has come, which wakes us again
		return true
	}
	a.reload.drop()
	a.proxy.replace(next.proxy)
	a.config, a.hello = next.config, next.hello
	a.prober.look()
	return true
}

// open makes a connection by the first transport that works, beginning with the
// one that did last.
func (a *Agent) open(ctx context.Context, last string) (link.Conn, error) {
	runners := a.runners()
	if last == link.TransportWebSocket {
		slices.Reverse(runners)
	}
	var errs []error
	for _, r := range runners {
		dialling, cancel := context.WithTimeout(ctx, longDialTimeout)
		conn, err := r.dial(dialling)
		cancel()
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// add lets p use the upstreams of another proxy as well; of those with the same
// name the other's.
func (p *proxy) add(more *proxy) {
	all := maps.Clone(*p.upstreams.Load())
	maps.Copy(all, *more.upstreams.Load())
	p.upstreams.Store(&all)
}

// inherit keeps what is the same as in the old configuration, with its
// connections. It comes before p is used.
func (p *proxy) inherit(old *proxy) {
	upstreams := *p.upstreams.Load()
	for name, u := range *old.upstreams.Load() {
		if fresh := upstreams[name]; fresh != nil && u.same(fresh) {
			upstreams[name] = u
		}
	}
	p.budget = old.budget // requests that run hold their part of it
}

// same reports whether two upstreams are one server with one key, for the same
// requests.
func (u *upstream) same(v *upstream) bool {
	path := func(u *upstream) string {
		if u.key == nil {
			return ""
		}
		return u.key.path
	}
	return u.address == v.address && u.host == v.host && u.prefix == v.prefix && (u.tls == nil) == (v.tls == nil) && path(u) == path(v) &&
		slices.Equal(u.allow, v.allow)
}

// replace makes p use the upstreams of another proxy. Requests that run keep
// theirs.
func (p *proxy) replace(next *proxy) {
	old := *p.upstreams.Swap(next.upstreams.Load())
	retire(old, *next.upstreams.Load())
}

// leaveTo closes what only p, and not its successor, keeps.
func (p *proxy) leaveTo(next *proxy) {
	retire(*p.upstreams.Load(), *next.upstreams.Load())
}

// retire drops the idle connections of upstreams that are not among the others.
// What runs over them may finish.
func retire(old, others map[string]*upstream) {
	for name, u := range old {
		if others[name] != u {
			u.idle.close()
		}
	}
}

// close drops all idle connections, and those that become idle later.
func (p *idleConns) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.drop()
}
