//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig"
	"github.com/postern-dev/postern/tests/rig/freeport"
	"github.com/postern-dev/postern/tests/upstream/play"
)

// poll is the interval of checks while waiting for a condition. connectLimit is the maximum time until all
// connectors are online.
const (
	poll         = 20 * time.Millisecond
	connectLimit = 5 * time.Minute
)

// A system is one of the paths to the upstream.
type system struct {
	Name   string
	Target target
	// Processes take part in a request. The upstream is the first.
	Processes []process

	gateway *rig.Gateway // the gateway or plain Caddy; nil without one
	https   string       // https://host:port for tunnels over WebSockets, "" without
}

// transports are the transports of systems with a tunnel.
var transports = map[string]string{
	postern: config.TransportQUIC, old: config.TransportQUIC,
	webSocket: config.TransportWebSocket,
}

// A process is a process with its name in the tables.
type process struct {
	name string
	*rig.Process
}

// Names of processes.
const (
	nameUpstream  = "upstream"
	nameCaddy     = "caddy"
	nameGateway   = "gateway"
	nameConnector = "connector"
)

// stop ends a process that is no longer needed.
func stop(p *rig.Process) {
	_ = p.Terminate(3 * time.Second) // after that, it is killed
}

// rigs has the rig for all processes, and a rig with the binaries to compare.
type rigs struct {
	*rig.Rig
	old *rig.Rig
}

// newRigs returns rigs and a function that ends them, as [command.Command.Rig] does.
func newRigs(ctx context.Context, o options) (context.Context, rigs, func(keep bool) error, error) {
	ctx, _, r, end, err := program().Rig(ctx, o.Bin)
	if err != nil || o.Compare == "" {
		return ctx, rigs{Rig: r}, end, err
	}
	ctx, _, other, endOther, err := program().Rig(ctx, o.Compare)
	if err != nil {
		return nil, rigs{}, nil, errors.Join(err, end(false))
	}
	return ctx, rigs{r, other}, func(keep bool) error { return errors.Join(endOther(keep), end(keep)) }, nil
}

// A builder starts the systems of a run.
type builder struct {
	rig      rigs
	upstream process
	address  string       // of the upstream
	host     string       // address of gateways for connectors
	home     func(func()) // calls a function that starts a connector or the upstream, in its namespace
}

// newBuilder starts the upstream, which all systems of the builder share.
func newBuilder(r rigs, host string, home func(func())) (b *builder, err error) {
	b = &builder{rig: r, host: host, home: home, upstream: process{name: nameUpstream}}
	home(func() { b.upstream.Process, b.address, err = program().Start(r.Rig, nameUpstream, roleUpstream, nil) })
	return b, err
}

// onLoopback returns a builder for systems without a line.
func onLoopback(r rigs) (*builder, error) {
	return newBuilder(r, "127.0.0.1", func(start func()) { start() })
}

// build starts a system and waits until it answers.
func (b *builder) build(ctx context.Context, name string) (s *system, err error) {
	s = b.system(name)
	switch {
	case name == plain:
		err = b.startPlain(ctx, s)
	case transports[name] != "":
		if err = b.startGateway(ctx, s); err == nil {
			err = b.connect(ctx, s)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	return s, s.awaitAnswer(ctx, rig.StartLimit)
}

// system returns a system that has only the upstream.
func (b *builder) system(name string) *system {
	return &system{Name: name, Target: target{Addr: b.address, Key: "none"}, Processes: []process{b.upstream}}
}

// stop ends the system's own processes.
func (s *system) stop() {
	for _, p := range slices.Backward(s.Processes[1:]) {
		stop(p.Process)
	}
}

// awaitAnswer waits for a correct answer.
func (s *system) awaitAnswer(ctx context.Context, limit time.Duration) error {
	return rig.Poll(ctx, limit, poll, "an answer through "+s.Name, func(context.Context) error {
		c, err := s.Target.dial(rig.StartLimit)
		if err != nil {
			return err
		}
		defer c.Close()
		return c.do(s.Target.ask(play.Script{Tokens: 1}, ""))
	})
}

// startPlain starts a Caddy with a reverse proxy only.
func (b *builder) startPlain(ctx context.Context, s *system) error {
	proxy := fmt.Sprintf("reverse_proxy %s {\n transport http {\n keepalive_idle_conns_per_host 256\n }\n}", b.address)
	return b.startCaddy(ctx, s, nameCaddy, rig.GatewayOptions{Plain: true, Site: proxy})
}

// startGateway starts a gateway without connectors. Clients use plain HTTP, as with the other systems. Tunnels
// over WebSockets use HTTPS, as from other networks.
func (b *builder) startGateway(ctx context.Context, s *system) error {
	o := rig.GatewayOptions{Host: b.host}
	if s.Name == webSocket {
		addr, err := freeport.Addr()
		if err != nil {
			return err
		}
		_, port, _ := net.SplitHostPort(addr) // the address has a port
		s.https = "https://" + net.JoinHostPort(b.host, port)
		o.Sites = fmt.Sprintf("%s {\n bind %s\n tls internal\n model_gateway\n}\n", s.https, b.host)
	}
	return b.startCaddy(ctx, s, nameGateway, o)
}

// startCaddy starts bin/caddy and waits until it serves.
func (b *builder) startCaddy(ctx context.Context, s *system, name string, o rig.GatewayOptions) error {
	r := b.rig.Rig
	if s.Name == old {
		r = b.rig.old
	}
	// The name is unique.
	o.Name, o.Grace = fmt.Sprintf("%s-%d", name, len(r.Processes())), time.Second
	g, err := r.Gateway(o)
	if err != nil {
		return err
	}
	s.gateway, s.Target.Addr = g, strings.TrimPrefix(g.URL, "http://")
	s.Processes = append(s.Processes, process{name, g.Process})
	return g.Start(ctx)
}

// connect creates a key, a connector and a deployment at the gateway, and starts the connector.
func (b *builder) connect(ctx context.Context, s *system) error {
	c, err := s.newConnector(ctx, s.gateway.Process.Name)
	if err != nil {
		return err
	}
	if err := c.Configure(b.connectorConfig(s)); err != nil {
		return err
	}
	if _, s.Target.Key, err = s.gateway.Key(ctx, "bench", "be*"); err != nil {
		return err
	}
	if err := s.gateway.Deploy(ctx, publicModel, map[string]string{"connector": c.ID, "model": localModel}); err != nil {
		return err
	}
	if b.home(func() { err = c.Launch() }); err != nil {
		return err
	}
	s.Processes = append(s.Processes, process{nameConnector, c.Process})
	return s.waitOnline(ctx, 1)
}

// newConnector creates a connector whose token has the URL of the system's site.
func (s *system) newConnector(ctx context.Context, name string) (*rig.Connector, error) {
	c, err := s.gateway.CreateConnector(ctx, name)
	if err != nil {
		return nil, err
	}
	t, err := link.ParseToken(c.Token)
	if err != nil {
		return nil, err
	}
	t.URL = s.https // a gateway with two sites does not know the right one
	c.Token = t.Encode()
	return c, nil
}

// connectorConfig returns the configuration of a connector without its token.
func (b *builder) connectorConfig(s *system) map[string]any {
	return map[string]any{"upstream": "http://" + b.address, "transport": transports[s.Name], "max_requests": maxParallel}
}

// waitOnline waits until n connectors of the gateway are online.
func (s *system) waitOnline(ctx context.Context, n int) error {
	return rig.Poll(ctx, connectLimit, poll, "dialing in", func(ctx context.Context) error {
		return s.gateway.Admin.ExpectOnline(ctx, n)
	})
}
