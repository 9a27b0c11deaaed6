// Package agent is the connector: it dials the gateway, says which upstreams it
// has, and hands the requests that come down the tunnel to them. It listens on
// nothing.
//
// An [Agent] keeps one tunnel up for as long as its Run lasts. The tunnel's
// protocol is package link's; this package adds what is the connector's own:
//
//	config.go, parse.go, validate.go   the configuration and its errors
//	store.go, check.go                 where the configuration is kept, and whether its upstreams answer
//	discover.go, pair.go               how a machine becomes a connector
//	agent.go, retry.go, fatal.go       one tunnel after another, the pauses between, and the end of all
//	dial.go, websocket.go, ear.go      a connection to the gateway, over QUIC or its HTTPS port
//	socket*.go                         its socket, which takes a missing route for a lost packet
//	race.go                            which of the two
//	handover.go, renew.go              how to change, beside the tunnel that there is
//	rescue.go, loss.go, echo.go        a tunnel that fell silent, and one that loses too much
//	session.go                         one tunnel: hello, heartbeat, requests, drain
//	proxy.go, headers.go, payload.go   a request on its way to an upstream
//	allow.go                           which requests may reach one
//	upstream.go, answer.go             the client that speaks to it, HTTP/1.1 with or without TLS
//	connection.go, silent_*.go         its connections, and the idle ones among them
//	health.go                          whether it is reachable, and which models it has
//	keyfile.go                         an upstream's own key
//	reload.go, setup.go                another configuration, without losing a request
//	rotate.go, keep.go, owner_*.go     another token, without losing the tunnel
//	status.go, monitor.go              what the connector tells of itself
//	diagnose.go, diagnose_upstream.go  what keeps it from working
package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"net/url"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/memory"
)

// Options configures an [Agent]. The zero value works.
type Options struct {
	// Logger gets state changes, and requests at debug level. Default: none.
	Logger *slog.Logger
	// Version is told to the gateway. Default: "dev".
	Version string
	// DrainTimeout is how long running requests may take to finish after Run's
	// context has ended. Default: 30s.
	DrainTimeout time.Duration
	// Keep writes a new tunnel token over the old one, where the configuration
	// is kept, so that it outlives this process and the machine's power. After an
	// error the old one must be there. Default: tokens cannot be kept.
	Keep func(old, renewed string) error
}

// Agent is a connector. Make it with [New].
type Agent struct {
	logger *slog.Logger
	setup

	webDelay time.Duration // of the WebSocket in the next attempt
	loss     lossGuard
	tunnels  sync.WaitGroup
	known    bool // the gateway has welcomed this process

	monitor  monitor
	prober   *prober
	reload   reloading
	rotation rotating

	drainTimeout time.Duration
	pongTimeout  time.Duration
	silenceLimit time.Duration // 0: pongTimeout
	moment       time.Duration // of a silent tunnel
	firstUpgrade time.Duration
	lossSpan     time.Duration
	retry        retry
}

// setup is what a configuration makes of an agent.
type setup struct {
	config    Config
	hello     link.Hello
	pin       string
	dialer    *dialer
	web       *webDialer
	proxy     *proxy
	transport string
}

// New checks the configuration, reads the upstreams' keys and returns a
// connector that is ready to run. Its errors name the field and the fix.
func New(c Config, o Options) (*Agent, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	token, err := link.ParseToken(c.TunnelToken)
	if err != nil {
		return nil, fmt.Errorf("tunnel_token: %w", err)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Version == "" {
		o.Version = "dev"
	}
	if o.DrainTimeout <= 0 {
		o.DrainTimeout = 30 * time.Second
	}
	upstreams, err := c.open(o.Logger)
	if err != nil {
		return nil, err
	}
	a := &Agent{
		logger:       o.Logger,
		setup:        newSetup(c, token, upstreams, o),
		webDelay:     webSocketDelay,
		firstUpgrade: firstUpgrade,
		lossSpan:     lossSpan,
		drainTimeout: o.DrainTimeout,
		pongTimeout:  pongTimeout,
		silenceLimit: silenceLimit,
		moment:       rescueMoment,
		retry:        retry{random: mathrand.Float64},
		prober:       newProber(o.Logger),
		reload:       reloading{wake: make(chan struct{}, 1), first: reloadPause},
		rotation:     rotating{keep: o.Keep},
	}
	if err := a.hello.Check(); err != nil {
		return nil, err
	}
	a.monitor.connecting() // as soon as Run is called
	return a, nil
}

// newSetup returns the setup of a valid configuration.
func newSetup(c Config, token link.Token, upstreams map[string]*upstream, o Options) setup {
	server := token.Server
	if c.Server != "" {
		server = c.Server
	}
	// Without a name the gateway shows the connector's own.
	host, _ := os.Hostname()
	dialer, web := newDialer(server, token.Pin), newWebDialer(token.URL, server, token.Pin, o.Logger)
	dialer.maxRequests, web.maxRequests = c.MaxRequests, c.MaxRequests
	return setup{
		config: c,
		hello: link.Hello{
			Connector: token.Connector,
			Secret:    token.Secret,
			Instance:  rand.Text(),
			Name:      host,
			Version:   o.Version,
			OS:        runtime.GOOS + "/" + runtime.GOARCH,
			Upstreams: slices.Sorted(maps.Keys(upstreams)),
			Routes:    c.Routes,

			MaxRequests: c.MaxRequests,
		},
		pin:       token.Pin,
		dialer:    dialer,
		web:       web,
		proxy:     newProxy(upstreams, memory.NewBudget(c.MemoryBudget()), o.Logger),
		transport: cmp.Or(c.Transport, TransportAuto),
	}
}

// open returns the upstreams of a valid configuration by name.
func (c *Config) open(logger *slog.Logger) (map[string]*upstream, error) {
	allow, err := c.allowed()
	if err != nil {
		return nil, err
	}
	upstreams := make(map[string]*upstream)
	add := func(name, field, keyPath string, base *url.URL) error {
		var key *keyFile
		if keyPath != "" {
			var err error
			if key, err = openKeyFile(keyPath, time.Now, logger); err != nil {
				return fmt.Errorf("%s: %w", field, err)
			}
		}
		upstreams[name] = newUpstream(name, base, key)
		upstreams[name].allow = allow
		return nil
	}
	if c.Upstream != "" {
		base, err := plainBase(c.Upstream)
		if err != nil {
			return nil, fmt.Errorf("upstream: %w", err)
		}
		return upstreams, add(DefaultUpstream, "api_key_file", c.APIKeyFile, base)
	}
	for name, u := range c.Upstreams {
		base, err := fullBase(u.BaseURL)
		if err != nil {
			return nil, fmt.Errorf("upstreams.%s.BaseUrl: %w", name, err)
		}
		if err := add(name, "upstreams."+name+".api_key_file", u.APIKeyFile, base); err != nil {
			return nil, err
		}
	}
	return upstreams, nil
}

// Run keeps a tunnel to the gateway up until ctx ends. Then running requests
// have the drain timeout to finish, and Run returns nil. Whatever goes wrong
// with the tunnel is logged and tried again: a gateway that is away may be there
// later. What only somebody's hand can mend is a [FatalError]. Run must not be
// called again before it has returned.
func (a *Agent) Run(ctx context.Context) error {
	defer func() { a.proxy.close() }() // of the last configuration
	defer a.reload.stop()
	watching, stop := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() {
		a.prober.run(watching, func() map[string]*upstream { return *a.current().proxy.upstreams.Load() })
	})
	defer watcher.Wait()
	defer stop()
	a.retry.reset()
	for ctx.Err() == nil {
		end := a.runOnce(ctx)
		if ctx.Err() != nil {
			break
		}
		if kindOf(end.err) == endRemoved {
			a.known = false // what has worked will not any more
		}
		if fatal := a.fatal(end.err); fatal != nil {
			a.tunnels.Wait()
			a.monitor.gaveUp(fatal.Reason, fatal.Fix)
			a.logger.Error("ended", "reason", fatal.Reason, "fix", fatal.Fix)
			return fatal
		}
		pause := a.retry.pause(end)
		a.report(end, pause)
		select {
		case <-ctx.Done():
		case <-a.reload.wake:
		case <-time.After(pause):
		}
	}
	a.tunnels.Wait()
	a.monitor.stopped()
	a.logger.Info("stopped")
	return nil
}

// ending says how a tunnel, or the attempt at one, came to its end.
type ending struct {
	err   error
	lived time.Duration // zero: there never was a welcome
}

// runOnce dials, and serves the tunnel until it ends.
func (a *Agent) runOnce(ctx context.Context) ending {
	a.monitor.connecting()
	s, err := a.enter(ctx)
	if err != nil {
		return ending{err: err}
	}
	for {
		a.logger.Info("connected", "remote", s.conn.RemoteAddr().String(),
			"rtt", s.conn.RTT().Round(10*time.Microsecond).String(),
			"connector", a.hello.Connector, "session", s.welcome.Session, "gateway_version", s.welcome.Version, "transport", s.conn.Transport())
		a.monitor.online(s.status())
		a.known = true
		end, next := a.tend(ctx, s)
		if next == nil {
			return end
		}
		s = next
	}
}

// report logs an ending with what to do about it, where there is something.
func (a *Agent) report(end ending, pause time.Duration) {
	message, level, fix := "cannot connect", slog.LevelWarn, fixFor(end.err)
	if end.lived > 0 {
		message = "disconnected"
	}
	switch kindOf(end.err) {
	case endComeBack, endReborn:
		level = slog.LevelInfo
	case endRefused, endReplaced, endWrongPin:
		level = slog.LevelError
	}
	attributes := []any{"reason", reason(end.err), "retry_in", pause.Round(10 * time.Millisecond).String()}
	if end.lived > 0 {
		attributes = append(attributes, "lived", end.lived.Round(time.Second).String())
	}
	if fix != "" {
		attributes = append(attributes, "fix", fix)
	}
	a.monitor.waiting(reason(end.err), fix, pause)
	a.logger.Log(context.Background(), level, message, attributes...)
}
