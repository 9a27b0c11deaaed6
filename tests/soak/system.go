package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/tests/command"
	"github.com/postern-dev/postern/tests/rig"
)

// How many of each there are.
const (
	hosts     = 4 // processes that hold the connectors that are not processes
	upstreams = 4 // model servers
	relays    = 5 // bad paths
)

// grace is how long the gateway gives what runs, when it ends or takes another
// configuration: longer than all answers but those of clients that do not read.
const grace = 30 * time.Second

// A system is everything that a run has started.
type system struct {
	o    options
	dir  string
	bin  string
	fail context.CancelCauseFunc

	gateway    *process
	up         sync.RWMutex // locked while the gateway is being replaced
	admin      admin
	url        string // http://127.0.0.1:port
	udp        string // host:port
	reloading  sync.Mutex
	generation int // of the gateway's configuration

	servers    []*process // model servers
	addresses  []string   // theirs
	deaths     [upstreams]atomic.Int32
	hosts      []*host
	relays     []*relay
	connectors []*connector

	groups  [][]*deployment // by the share of requests that they get
	moving  []*deployment
	keys    keyring
	clients *clients
	lastID  atomic.Int64
	log     *faultLog
	tally   *tally

	seenMu sync.Mutex
	seen   map[int64]sighting // requests that have reached a model
}

// nextID returns the id of another request.
func (s *system) nextID() int64 { return s.lastID.Add(1) }

// newSystem makes a system without processes. The context that it returns ends
// with the cause when one of its processes ends unasked.
func newSystem(ctx context.Context, o options) (context.Context, *system, error) {
	s := &system{o: o, log: &faultLog{}, seen: map[int64]sighting{}}
	s.tally = newTally(s.log, s.logLines)
	root, err := rig.Root()
	if err != nil && o.Bin == "" {
		return nil, nil, err
	}
	if s.bin, err = filepath.Abs(o.Bin); o.Bin == "" {
		s.bin = filepath.Join(root, "bin")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("finding the binaries: %w", err)
	}
	for _, name := range []string{"caddy", "connector"} {
		if _, err := os.Stat(filepath.Join(s.bin, name)); err != nil {
			return nil, nil, fmt.Errorf("%s is missing; build it with ./xcaddy.sh: %w", name, err)
		}
	}
	if s.dir, err = folder(o.Keep); err != nil {
		return nil, nil, err
	}
	ctx, s.fail = context.WithCancelCause(ctx)
	return ctx, s, nil
}

// folder makes the folder of a run.
func folder(keep string) (string, error) {
	if keep == "" {
		dir, err := os.MkdirTemp("", "postern-soak-")
		if err != nil {
			return "", fmt.Errorf("creating a folder: %w", err)
		}
		return dir, nil
	}
	if err := os.Mkdir(keep, 0o700); err != nil {
		return "", fmt.Errorf("creating the folder for logs: %w", err)
	}
	return filepath.Abs(keep)
}

// process makes a process that is not started yet.
func (s *system) process(name string, make func() *exec.Cmd) *process {
	return &process{name: name, dir: s.dir, logPath: filepath.Join(s.dir, name+".log"), make: make, fail: s.fail}
}

// start starts everything, and returns when all connectors are online.
func (s *system) start(ctx context.Context) error {
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"starting model servers", s.startUpstreams},
		{"starting the gateway", s.startGateway},
		{"making keys and connectors", s.register},
		{"starting connectors", s.startConnectors},
		{"making deployments", s.deploy},
	} {
		command.Progress("%s", step.name)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return s.waitOnline(ctx)
}

// startUpstreams starts the model servers.
func (s *system) startUpstreams(context.Context) error {
	for i := range upstreams {
		address, err := rig.FreeAddr()
		if err != nil {
			return err
		}
		p := s.process(fmt.Sprintf("model-server-%d", i), func() *exec.Cmd {
			return program().InRole(roleUpstream, addressVariable+"="+address)
		})
		s.servers, s.addresses = append(s.servers, p), append(s.addresses, address)
		if _, err := p.start(true); err != nil {
			return err
		}
	}
	return nil
}

// startGateway starts the gateway for the first time.
func (s *system) startGateway(ctx context.Context) error {
	var at [3]string
	for i := range at {
		var err error
		if at[i], err = rig.FreeAddr(); err != nil {
			return err
		}
	}
	s.admin, s.url, s.udp = admin(at[0]), "http://"+at[1], at[2]
	caddyfile := filepath.Join(s.dir, "Caddyfile")
	s.gateway = s.process("gateway", func() *exec.Cmd {
		return exec.Command(filepath.Join(s.bin, "caddy"), "run", "--config", caddyfile, "--adapter", "caddyfile")
	})
	if err := os.WriteFile(caddyfile, []byte(s.caddyfile()), 0o600); err != nil {
		return fmt.Errorf("writing the Caddyfile: %w", err)
	}
	return s.restartGateway(ctx)
}

// restartGateway starts the gateway, which is not running, and waits until it
// serves.
func (s *system) restartGateway(ctx context.Context) error {
	if _, err := s.gateway.start(false); err != nil {
		return err
	}
	return command.Until(ctx, startLimit, poll, "the start of the gateway", func() error {
		if _, err := s.admin.online(ctx); err != nil {
			return err
		}
		conn, err := net.DialTimeout("tcp", s.url[len("http://"):], time.Second)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// caddyfile is the gateway's configuration. Each generation of it differs in
// two values that matter little.
func (s *system) caddyfile() string {
	return fmt.Sprintf(`{
	admin %s
	persist_config off
	auto_https off
	metrics
	grace_period %s
	model_gateway {
		listen %s
		public %s
		storage bolt %s
	}
}
%s {
	bind 127.0.0.1
	model_gateway {
		connect_wait %ds
		keep_alive %ds
	}
}
`, s.admin, grace, s.udp, s.udp, filepath.Join(s.dir, "gateway.db"), s.url, 3+s.generation%2, 5+s.generation%3)
}

// close ends all processes and removes the folder, unless it is to be kept.
func (s *system) close(keep bool) {
	defer s.fail(nil)
	for _, r := range s.relays {
		r.close()
	}
	all := append([]*process{}, s.servers...)
	for _, c := range s.connectors {
		if c.process != nil {
			all = append(all, c.process)
		}
	}
	for _, h := range s.hosts {
		all = append(all, h.process)
	}
	if s.gateway != nil {
		all = append(all, s.gateway)
	}
	for _, p := range all {
		p.kill()
	}
	if keep || s.o.Keep != "" {
		command.Progress("the logs are in %s", s.dir)
		return
	}
	_ = os.RemoveAll(s.dir) // a folder of temporary files
}
