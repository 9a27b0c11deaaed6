package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/postern-dev/postern/tests/proc"
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
}

// newBuilder starts the upstream, which all systems share.
func newBuilder(f *fleet, o options) (*builder, error) {
	bin := o.Bin
	if bin == "" {
		root, err := proc.Root()
		if err != nil {
			return nil, err
		}
		bin = filepath.Join(root, "bin")
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		return nil, fmt.Errorf("finding the binaries: %w", err)
	}
	for name, needed := range map[string]bool{"caddy": o.has(plain) || o.has(postern), "connector": o.has(postern)} {
		if !needed {
			continue
		}
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			return nil, fmt.Errorf("finding the binaries: %w; run ./xcaddy.sh first", err)
		}
	}
	c, address, err := f.startRole(nameUpstream, roleUpstream, nil)
	if err != nil {
		return nil, err
	}
	return &builder{fleet: f, bin: bin, upstream: process{nameUpstream, c}, address: address}, nil
}

// build starts what a system needs and waits until it answers.
func (b *builder) build(ctx context.Context, name string) (*system, error) {
	s := &system{Name: name, Target: target{Addr: b.address, Key: "none"}, Processes: []process{b.upstream}}
	var err error
	switch name {
	case plain:
		err = b.startPlain(ctx, s)
	case postern:
		if err = b.startGateway(ctx, s); err == nil {
			err = b.connect(ctx, s)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	if err := until(ctx, startLimit, "an answer through "+name, s.try); err != nil {
		return nil, err
	}
	return s, nil
}

// try sends one request.
func (s *system) try() error {
	c, err := s.Target.dial(startLimit)
	if err != nil {
		return err
	}
	defer c.Close()
	return oneRequest(c, s.Target.request(requestBody(script{}, 0)), appendCompletion(nil, publicModel))
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

// startGateway starts a gateway that knows no connector yet.
func (b *builder) startGateway(ctx context.Context, s *system) error {
	addrs, err := freeAddrs(3)
	if err != nil {
		return err
	}
	s.Target.Addr, s.Admin = addrs[1], admin(addrs[0])
	return b.startCaddy(ctx, s, nameGateway, fmt.Sprintf(`{
	admin %s
	persist_config off
	grace_period 1s
	model_gateway {
		listen %s
		public %s
		storage bolt %s
	}
}
http://%s {
	model_gateway
}
`, addrs[0], addrs[2], addrs[2], filepath.Join(b.fleet.dir, fmt.Sprintf("gateway-%d.db", len(b.fleet.children))), addrs[1]))
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
	return until(ctx, startLimit, "starting "+name, func() error {
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
	config, err := json.Marshal(connectorConfig(con.Token, b.address))
	if err != nil {
		return fmt.Errorf("writing the connector's configuration: %w", err)
	}
	s.config = filepath.Join(b.fleet.dir, "connector.json")
	if err := os.WriteFile(s.config, config, 0o600); err != nil {
		return fmt.Errorf("writing the connector's configuration: %w", err)
	}
	s.connector, err = b.fleet.start(nameConnector, exec.Command(filepath.Join(b.bin, "connector"), "run", "--config", s.config))
	if err != nil {
		return err
	}
	s.Processes = append(s.Processes, process{nameConnector, s.connector})
	return s.waitOnline(ctx, 1)
}

// connectorConfig is the plain form of a connector's configuration.
func connectorConfig(token, upstream string) map[string]string {
	return map[string]string{"tunnel_token": token, "upstream": "http://" + upstream}
}

// waitOnline waits until n connectors of the gateway are online.
func (s *system) waitOnline(ctx context.Context, n int) error {
	return until(ctx, connectLimit, fmt.Sprintf("having %d connectors online", n), func() error {
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
const connectLimit = time.Minute

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
