package agent

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/link"
)

// errRenewed: the tunnel of another configuration takes over.
var errRenewed = errors.New("the configuration has changed")

// reloading is what an agent needs to change its configuration while it runs.
type reloading struct {
	wake    chan struct{} // room for one: next is to be looked at
	leaving sync.WaitGroup
	ready   *quic.Conn // of the next tunnel; only Run's goroutine knows it

	mu   sync.Mutex
	next *Agent // whose configuration is to be taken; nil: none
}

// Reload makes the agent work by another configuration. An error names the
// field and the fix, and means that nothing has changed.
//
// Keys, and the addresses of upstreams, change at once. What the gateway has to
// know (the names of upstreams, routes, the token) takes a new tunnel: when the
// gateway can be reached with it, the old one is drained, and no request is
// lost.
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
	if old.sameTunnel(next) {
		old.proxy.replace(next.proxy)
		old.config = next.config
		a.logger.Info("configuration reloaded", "tunnel", "kept")
		return nil
	}
	a.logger.Info("configuration reloaded", "tunnel", "renewing")
	a.reload.next = next
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

// newest returns a copy of the newest configuration.
func (a *Agent) newest() (n struct {
	hello  link.Hello
	dialer *dialer
	proxy  *proxy
},
) {
	a.reload.mu.Lock()
	defer a.reload.mu.Unlock()
	latest := a.latest()
	n.hello, n.dialer, n.proxy = latest.hello, latest.dialer, latest.proxy
	return n
}

// sameTunnel tells whether the gateway would see no difference.
func (a *Agent) sameTunnel(b *Agent) bool {
	return a.config.TunnelToken == b.config.TunnelToken && a.config.Server == b.config.Server &&
		a.config.Transport == b.config.Transport && reflect.DeepEqual(a.hello, b.hello)
}

func (a *Agent) wakeReload() {
	select {
	case a.reload.wake <- struct{}{}:
	default:
	}
}

// adopt takes the configuration that waits for it, if there is one. It runs on
// Run's goroutine, while no tunnel of the old one takes requests.
func (a *Agent) adopt() {
	a.reload.mu.Lock()
	defer a.reload.mu.Unlock()
	next := a.reload.next
	if next == nil {
		return
	}
	a.reload.next = nil
	old := a.proxy
	a.config, a.hello, a.dialer, a.proxy = next.config, next.hello, next.dialer, next.proxy
	a.retry.reset()
	old.leaveTo(a.proxy)
}

// waitingConfig returns the dialer for the configuration that waits.
func (a *Agent) waitingConfig() *dialer {
	a.reload.mu.Lock()
	defer a.reload.mu.Unlock()
	if a.reload.next == nil {
		return nil
	}
	return a.reload.next.dialer
}

// dialNext dials, unless a connection is ready already.
func (a *Agent) dialNext(ctx context.Context) (*quic.Conn, error) {
	if conn := a.reload.ready; conn != nil {
		a.reload.ready = nil
		if conn.Context().Err() == nil {
			return conn, nil
		}
	}
	return a.dialer.dial(ctx)
}

// handOver makes place for a tunnel with a new configuration: a connection is
// made first, so that all that can fail there costs nothing, and then the
// gateway is asked to send no more here. Only after its word for that the
// successor may say hello; before, it would replace this tunnel and cut its
// requests. It returns whether the successor may come.
func (s *session) handOver(ctx context.Context) bool {
	a := s.agent
	next := a.waitingConfig()
	if next == nil {
		return false
	}
	dialling, cancel := context.WithTimeout(ctx, longDialTimeout)
	defer cancel()
	conn, err := next.dial(dialling)
	if err != nil {
		if ctx.Err() == nil {
			a.logger.Error("cannot connect with the new configuration; the tunnel stays as it was",
				"server", next.server, "reason", reason(err), "retry_in", reloadPause.String(), "fix", "check `server` and `tunnel_token`, and reload again")
			time.AfterFunc(reloadPause, a.wakeReload)
		}
		return false
	}
	a.reload.ready = conn
	if err := s.send(link.Drain{}); err == nil {
		select {
		case <-s.parted:
		case <-s.conn.Context().Done():
		case <-time.After(a.pongTimeout):
		}
	}
	return true
}

// reloadPause is between attempts to reach a gateway with a new configuration.
const reloadPause = 10 * time.Second

// leave waits for the last answers of a tunnel that takes no more requests.
func (s *session) leave() {
	select {
	case <-s.conn.Context().Done():
	case <-time.After(s.agent.drainTimeout):
		s.agent.logger.Warn("running requests did not finish in time", "session", s.welcome.Session)
		s.close(link.CloseNone, errDrainTimeout)
	}
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
}

// same tells whether two upstreams are one server with one key.
func (u *upstream) same(v *upstream) bool {
	path := func(u *upstream) string {
		if u.key == nil {
			return ""
		}
		return u.key.path
	}
	return u.address == v.address && u.host == v.host && u.prefix == v.prefix && (u.tls == nil) == (v.tls == nil) && path(u) == path(v)
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
