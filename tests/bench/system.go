package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig"
)

// A system is one of the ways to the upstream.
type system struct {
	Name   string
	Target target
	// Processes do the work of a request, the upstream first.
	Processes []process

	gateway   *rig.Gateway   // or plain Caddy, if there is one
	connector *rig.Connector // Postern's
	https     string         // https://host:port for tunnels over WebSockets, "" without
	proxy     []string       // environment of the connector: a proxy, or none
}

// transportOf returns the transport of a system's tunnel, "" if it has none.
func transportOf(name string) string {
	switch name {
	case postern:
		return config.TransportQUIC
	case webSocket:
		return config.TransportWebSocket
	}
	return ""
}

// A process has a name in the tables.
type process struct {
	name string
	*rig.Process
}

// The names of processes.
const (
	nameUpstream  = "upstream"
	nameCaddy     = "caddy"
	nameGateway   = "gateway"
	nameConnector = "connector"
)

// newRig returns a rig in a folder of its own, and what ends it. The context that
// it returns ends with the cause when one of the rig's processes ends unasked.
func newRig(ctx context.Context, bin string) (context.Context, *rig.Rig, func() error, error) {
	dir, err := os.MkdirTemp("", "postern-bench-")
	if err != nil {
		return nil, nil, nil, fmt.Errorf("creating a folder: %w", err)
	}
	ctx, fail := context.WithCancelCause(ctx)
	r, err := rig.New(rig.Options{Dir: dir, Bin: bin, Ended: fail, Env: []string{
		// Connectors trust the authority of Caddy's certificates. No proxy of the
		// machine is in the way of what is measured.
		"SSL_CERT_FILE=" + filepath.Join(dir, "data", "caddy", "pki", "authorities", "local", "root.crt"),
		"HTTPS_PROXY=", "https_proxy=", "NO_PROXY=", "no_proxy=",
	}})
	if err != nil {
		fail(err)
		return nil, nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return ctx, r, func() error {
		defer fail(nil)
		return errors.Join(r.Close(), os.RemoveAll(dir))
	}, nil
}

// startRole starts another process of this program in a role, and returns the
// line that it announces.
func startRole(r *rig.Rig, name, role string, input *os.File) (*rig.Process, string, error) {
	p, err := r.Process(name, func() *exec.Cmd {
		cmd := program().InRole(role)
		if input != nil {
			cmd.Stdin = input
		}
		return cmd
	})
	if err != nil {
		return nil, "", err
	}
	line, err := p.StartAnnounced()
	return p, line, err
}

// stop ends a process that is no longer needed.
func stop(p *rig.Process) {
	_ = p.Terminate(3 * time.Second) // or it is killed
}

// builder starts the systems of a run.
type builder struct {
	rig      *rig.Rig
	upstream process
	address  string // of the upstream
	place    place
}

// A place is where processes are.
type place struct {
	gateway string       // host at which connectors reach gateways
	home    func(func()) // runs what starts a connector or the upstream
}

// loopback is where everything is unless a line is between.
func loopback() place {
	return place{gateway: "127.0.0.1", home: func(start func()) { start() }}
}

// newBuilder starts the upstream, which all systems share.
func newBuilder(r *rig.Rig, at place) (b *builder, err error) {
	b = &builder{rig: r, place: at, upstream: process{name: nameUpstream}}
	b.place.home(func() { b.upstream.Process, b.address, err = startRole(r, nameUpstream, roleUpstream, nil) })
	return b, err
}

// build starts what a system needs and waits until it answers.
func (b *builder) build(ctx context.Context, name string) (*system, error) {
	s := b.system(name)
	var err error
	switch name {
	case plain:
		err = b.startPlain(ctx, s)
	case postern, webSocket:
		if err = b.startGateway(ctx, s); err == nil {
			err = b.connect(ctx, s)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	if err := rig.Poll(ctx, rig.StartLimit, poll, "an answer through "+name, s.try); err != nil {
		return nil, err
	}
	return s, nil
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

// try sends one request.
func (s *system) try(context.Context) error {
	c, err := s.Target.dial(rig.StartLimit)
	if err != nil {
		return err
	}
	defer c.Close()
	what := smallTask()
	return oneRequest(c, s.Target.request(what.request), what.want)
}

// startPlain starts a Caddy that does nothing but pass on.
func (b *builder) startPlain(ctx context.Context, s *system) error {
	proxy := fmt.Sprintf("reverse_proxy %s {\n transport http {\n keepalive_idle_conns_per_host 256\n }\n}", b.address)
	return b.startCaddy(ctx, s, nameCaddy, rig.GatewayOptions{Plain: true, Site: proxy})
}

// startGateway starts a gateway that knows no connector yet. Clients come over
// plain HTTP as to the other systems; tunnels over WebSockets come over HTTPS, as
// they do from outside.
func (b *builder) startGateway(ctx context.Context, s *system) error {
	o := rig.GatewayOptions{Host: b.place.gateway}
	if transportOf(s.Name) == config.TransportWebSocket {
		addr, err := rig.FreeAddr()
		if err != nil {
			return err
		}
		_, port, _ := net.SplitHostPort(addr) // it has one
		s.https = "https://" + net.JoinHostPort(b.place.gateway, port)
		o.Sites = fmt.Sprintf("%s {\n bind %s\n tls internal\n model_gateway\n}\n", s.https, b.place.gateway)
	}
	return b.startCaddy(ctx, s, nameGateway, o)
}

// startCaddy starts bin/caddy and waits until it serves.
func (b *builder) startCaddy(ctx context.Context, s *system, name string, o rig.GatewayOptions) error {
	o.Name, o.Grace = b.unique(name), time.Second
	g, err := b.rig.Gateway(o)
	if err != nil {
		return err
	}
	s.gateway, s.Target.Addr = g, strings.TrimPrefix(g.URL, "http://")
	s.Processes = append(s.Processes, process{name, g.Process})
	return g.Start(ctx)
}

// unique returns a name that nothing else in the rig has.
func (b *builder) unique(name string) string {
	return fmt.Sprintf("%s-%d", name, len(b.rig.Processes()))
}

// connect gives the gateway a key, a connector and a deployment, and starts the
// connector.
func (b *builder) connect(ctx context.Context, s *system) error {
	c, err := b.newConnector(ctx, s, b.unique("bench"))
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
	b.place.home(func() { err = c.Launch(s.proxy...) })
	if err != nil {
		return err
	}
	s.connector = c
	s.Processes = append(s.Processes, process{nameConnector, c.Process})
	return s.waitOnline(ctx, 1)
}

// newConnector creates a connector whose token leads to the system's site.
func (b *builder) newConnector(ctx context.Context, s *system, name string) (*rig.Connector, error) {
	c, err := s.gateway.CreateConnector(ctx, name)
	if err != nil {
		return nil, err
	}
	t, err := link.ParseToken(c.Token)
	if err != nil {
		return nil, err
	}
	t.URL = s.https // of two sites, a gateway does not know which one it is
	c.Token = t.Encode()
	return c, nil
}

// connectorConfig is the plain form of a connector's configuration, for the
// system's transport.
func (b *builder) connectorConfig(s *system) map[string]any {
	return map[string]any{"upstream": "http://" + b.address, "transport": transportOf(s.Name)}
}

// waitOnline waits until n connectors of the gateway are online.
func (s *system) waitOnline(ctx context.Context, n int) error {
	return rig.Poll(ctx, connectLimit, poll, "dialing in", func(ctx context.Context) error {
		return s.gateway.Admin.ExpectOnline(ctx, n)
	})
}

// connectLimit is how long all connectors may take to dial in.
const connectLimit = 5 * time.Minute

// cpu reads the CPU clock of each process.
func (s *system) cpu() (map[string]time.Duration, error) {
	times := map[string]time.Duration{}
	for _, p := range s.Processes {
		t, err := cpuTime(p.Pid())
		if err != nil {
			return nil, err
		}
		times[p.name] = t
	}
	return times, nil
}

// spent returns what each process has used since an earlier reading, in
// microseconds for each of n.
func (s *system) spent(since map[string]time.Duration, n int) (map[string]float64, error) {
	now, err := s.cpu()
	if err != nil {
		return nil, err
	}
	each := map[string]float64{}
	for name, t := range now {
		each[name] = float64(t-since[name]) / float64(time.Microsecond) / float64(n)
	}
	return each, nil
}
