package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/command"
	"github.com/postern-dev/postern/tests/rig"
)

// A system is one of the ways to the upstream.
type system struct {
	Name   string
	Target target
	// Processes do the work of a request, the upstream first.
	Processes []process
	Admin     admin // of its Caddy, if it has one

	connector *child // Postern's, and its configuration
	config    string
	https     string   // https://host:port for tunnels over WebSockets, "" without
	proxy     []string // environment of the connector: a proxy, or none
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
	Name  string
	child *child
}

// The names of processes.
const (
	nameUpstream  = "upstream"
	nameCaddy     = "caddy"
	nameGateway   = "gateway"
	nameConnector = "connector"
)

// builder starts the systems of a run.
type builder struct {
	fleet    *fleet
	bin      string // folder of the binaries
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
func newBuilder(f *fleet, o options, at place) (*builder, error) {
	bin := o.Bin
	if bin == "" {
		root, err := rig.Root()
		if err != nil {
			return nil, err
		}
		bin = filepath.Join(root, "bin")
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		return nil, fmt.Errorf("finding the binaries: %w", err)
	}
	for name, needed := range map[string]bool{"caddy": o.has(plain) || len(o.tunnels()) > 0, "connector": len(o.tunnels()) > 0} {
		if !needed {
			continue
		}
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			return nil, fmt.Errorf("finding the binaries: %w; run ./xcaddy.sh first", err)
		}
	}
	b := &builder{fleet: f, bin: bin, place: at}
	b.place.home(func() { b.upstream.child, b.address, err = f.startRole(nameUpstream, roleUpstream, nil) })
	b.upstream.Name = nameUpstream
	return b, err
}

// build starts what a system needs and waits until it answers.
func (b *builder) build(ctx context.Context, name string) (*system, error) {
	s := &system{Name: name, Target: target{Addr: b.address, Key: "none"}, Processes: []process{b.upstream}}
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
	if err := command.Until(ctx, startLimit, poll, "an answer through "+name, s.try); err != nil {
		return nil, err
	}
	return s, nil
}

// stop ends the system's own processes.
func (s *system) stop() {
	for _, p := range slices.Backward(s.Processes[1:]) {
		p.child.stop()
	}
}

// try sends one request.
func (s *system) try() error {
	c, err := s.Target.dial(startLimit)
	if err != nil {
		return err
	}
	defer c.Close()
	what := smallTask()
	return oneRequest(c, s.Target.request(what.request), what.want)
}

// startPlain starts a Caddy that does nothing but pass on.
func (b *builder) startPlain(ctx context.Context, s *system) error {
	addrs, err := freeAddrs(2)
	if err != nil {
		return err
	}
	s.Target.Addr, s.Admin = addrs[1], admin(addrs[0])
	return b.startCaddy(ctx, s, nameCaddy, fmt.Sprintf(`{
	admin %s
	persist_config off
	grace_period 1s
}
http://%s {
	reverse_proxy %s {
		transport http {
			keepalive_idle_conns_per_host 256
		}
	}
}
`, addrs[0], addrs[1], b.address))
}

// startGateway starts a gateway that knows no connector yet. Clients come over
// plain HTTP as to the other systems; tunnels over WebSockets come over HTTPS, as
// they do from outside.
func (b *builder) startGateway(ctx context.Context, s *system) error {
	addrs, err := freeAddrs(4)
	if err != nil {
		return err
	}
	for i, addr := range addrs[2:] {
		_, port, _ := net.SplitHostPort(addr) // it has one
		addrs[2+i] = net.JoinHostPort(b.place.gateway, port)
	}
	s.Target.Addr, s.Admin = addrs[1], admin(addrs[0])
	site := ""
	if transportOf(s.Name) == config.TransportWebSocket {
		s.https = "https://" + addrs[3]
		site = s.https + " {\n\ttls internal\n\tmodel_gateway\n}\n"
	}
	return b.startCaddy(ctx, s, nameGateway, fmt.Sprintf(`{
	admin %s
	persist_config off
	auto_https disable_redirects
	skip_install_trust
	grace_period 1s
	servers {
		protocols h1 h2
	}
	model_gateway {
		listen %s
		public %s
		storage bolt %s
	}
}
http://%s {
	model_gateway
}
%s`, addrs[0], addrs[2], addrs[2], filepath.Join(b.fleet.dir, fmt.Sprintf("gateway-%d.db", len(b.fleet.children))), addrs[1], site))
}

// startCaddy starts bin/caddy with a Caddyfile and waits for its admin endpoint.
func (b *builder) startCaddy(ctx context.Context, s *system, name, caddyfile string) error {
	path := filepath.Join(b.fleet.dir, fmt.Sprintf("Caddyfile-%d", len(b.fleet.children)))
	if err := os.WriteFile(path, []byte(caddyfile), 0o600); err != nil {
		return fmt.Errorf("writing a Caddyfile: %w", err)
	}
	c, err := b.fleet.start(name, exec.Command(filepath.Join(b.bin, "caddy"), "run", "--config", path, "--adapter", "caddyfile"))
	if err != nil {
		return err
	}
	s.Processes = append(s.Processes, process{name, c})
	return command.Until(ctx, startLimit, poll, "starting "+name, func() error {
		_, err := s.Admin.call(ctx, http.MethodGet, "/config/", nil)
		return err
	})
}

// connect gives the gateway a key, a connector and a deployment, and starts the
// connector.
func (b *builder) connect(ctx context.Context, s *system) error {
	var con struct {
		ID    string `json:"id"`
		Token string `json:"tunnel_token"`
	}
	if err := s.Admin.manage(ctx, http.MethodPost, "/connectors", map[string]string{"name": "bench"}, &con); err != nil {
		return err
	}
	var key struct {
		Key string `json:"key"`
	}
	if err := s.Admin.manage(ctx, http.MethodPost, "/keys", map[string]string{"name": "bench", "scope": "be*"}, &key); err != nil {
		return err
	}
	s.Target.Key = key.Key
	deployment := map[string]string{"connector": con.ID, "model": localModel}
	if err := s.Admin.manage(ctx, http.MethodPut, "/deployments/"+publicModel, deployment, nil); err != nil {
		return err
	}
	plain, err := b.connectorConfig(s, con.Token)
	if err != nil {
		return err
	}
	config, err := json.Marshal(plain)
	if err != nil {
		return fmt.Errorf("writing the connector's configuration: %w", err)
	}
	s.config = filepath.Join(b.fleet.dir, fmt.Sprintf("connector-%d.json", len(b.fleet.children)))
	if err := os.WriteFile(s.config, config, 0o600); err != nil {
		return fmt.Errorf("writing the connector's configuration: %w", err)
	}
	cmd := exec.Command(filepath.Join(b.bin, "connector"), "run", "--config", s.config)
	cmd.Env = s.proxy
	b.place.home(func() { s.connector, err = b.fleet.start(nameConnector, cmd) })
	if err != nil {
		return err
	}
	s.Processes = append(s.Processes, process{nameConnector, s.connector})
	return s.waitOnline(ctx, 1)
}

// connectorConfig is the plain form of a connector's configuration, for the
// system's transport.
func (b *builder) connectorConfig(s *system, token string) (map[string]string, error) {
	t, err := link.ParseToken(token)
	if err != nil {
		return nil, err
	}
	t.URL = s.https // of two sites, a gateway does not know which one it is
	return map[string]string{"tunnel_token": t.Encode(), "upstream": "http://" + b.address, "transport": transportOf(s.Name)}, nil
}

// waitOnline waits until n connectors of the gateway are online.
func (s *system) waitOnline(ctx context.Context, n int) error {
	return command.Until(ctx, connectLimit, poll, fmt.Sprintf("having %d connectors online", n), func() error {
		var status struct {
			Connectors struct{ Online int } `json:"connectors"`
		}
		if err := s.Admin.manage(ctx, http.MethodGet, "/status", nil, &status); err != nil {
			return err
		}
		if status.Connectors.Online != n {
			return fmt.Errorf("there are %d", status.Connectors.Online)
		}
		return nil
	})
}

// connectLimit is how long all connectors may take to dial in.
const connectLimit = 5 * time.Minute

// cpu reads the CPU clock of each process.
func (s *system) cpu() (map[string]time.Duration, error) {
	times := map[string]time.Duration{}
	for _, p := range s.Processes {
		t, err := cpuTime(p.child.pid())
		if err != nil {
			return nil, err
		}
		times[p.Name] = t
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
