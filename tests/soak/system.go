package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
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
	rig  *rig.Rig
	fail context.CancelCauseFunc

	gateway    *rig.Gateway
	up         sync.RWMutex // locked while the gateway is being replaced
	reloading  sync.Mutex
	generation int // of the gateway's configuration

	servers    []*rig.Process // model servers
	addresses  []string       // theirs
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
	dir, err := folder(o.Keep)
	if err != nil {
		return nil, nil, err
	}
	s := &system{o: o, log: &faultLog{}, seen: map[int64]sighting{}}
	s.tally = newTally(s.log, s.logLines)
	ctx, s.fail = context.WithCancelCause(ctx)
	if s.rig, err = rig.New(rig.Options{Dir: dir, Bin: o.Bin, Ended: s.fail}); err != nil {
		s.fail(err)
		return nil, nil, errors.Join(err, os.Remove(dir))
	}
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
		p, err := s.rig.Process(fmt.Sprintf("model-server-%d", i), func() *exec.Cmd {
			return program().InRole(roleUpstream, addressVariable+"="+address)
		})
		if err != nil {
			return err
		}
		s.servers, s.addresses = append(s.servers, p), append(s.addresses, address)
		if _, err := p.StartAnnounced(); err != nil {
			return err
		}
	}
	return nil
}

// startGateway starts the gateway for the first time.
func (s *system) startGateway(ctx context.Context) (err error) {
	if s.gateway, err = s.rig.Gateway(s.configuration()); err != nil {
		return err
	}
	return s.gateway.Start(ctx)
}

// configuration is the gateway's. Each generation of it differs in two values
// that matter little.
func (s *system) configuration() rig.GatewayOptions {
	return rig.GatewayOptions{
		Global: "metrics", Grace: grace,
		Model: fmt.Sprintf("connect_wait %ds\nkeep_alive %ds", 3+s.generation%2, 5+s.generation%3),
	}
}

// persist calls what changes something at the gateway, and again if it gets no
// answer: a reload replaces Caddy's admin endpoint, which loses connections that
// are just being made. All such changes may be made twice.
func persist(ctx context.Context, change func() error) error {
	err := change()
	var answered *rig.StatusError
	for tries := 1; err != nil && tries < 3 && !errors.As(err, &answered) && command.Pause(ctx, 200*time.Millisecond) == nil; tries++ {
		err = change()
	}
	return err
}

var inflightPattern = regexp.MustCompile(`(?m)^postern_inflight_requests\{[^}]*\} (\d+)`)

// inflight sums what the gateway reports of requests that run.
func (s *system) inflight(ctx context.Context) (sum int, err error) {
	page, err := s.gateway.Admin.Metrics(ctx)
	if err != nil {
		return 0, err
	}
	for _, m := range inflightPattern.FindAllStringSubmatch(page, -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			return 0, fmt.Errorf("reading a metric: %w", err)
		}
		sum += n
	}
	return sum, nil
}

// close ends all processes and removes the folder, unless it is to be kept.
func (s *system) close(keep bool) error {
	defer s.fail(nil)
	for _, r := range s.relays {
		r.close()
	}
	err := s.rig.Close()
	if keep || err != nil || s.o.Keep != "" {
		command.Progress("the logs are in %s", s.rig.Dir)
		return err
	}
	return os.RemoveAll(s.rig.Dir)
}
