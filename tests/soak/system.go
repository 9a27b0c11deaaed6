package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/tests/command"
	"github.com/postern-dev/postern/tests/rig"
	"github.com/postern-dev/postern/tests/rig/freeport"
)

// Numbers of processes and paths.
const (
	hosts     = 4 // processes that run many connectors each
	upstreams = 4 // model servers
	relays    = 5 // UDP paths with faults
)

const (
	// grace is Caddy's grace period. It is longer than all answers except those to clients that stop reading.
	grace = 30 * time.Second
	// poll is the interval of checks while waiting for a condition.
	poll = 250 * time.Millisecond
	// recoveryLimit is the maximum time for recovery from a fault on a busy machine.
	recoveryLimit = 3 * time.Minute
)

// A system is everything that a run starts.
type system struct {
	o    options
	rig  *rig.Rig
	fail context.CancelCauseFunc
	end  func(keepLogs bool) error

	gateway    *rig.Gateway
	up         sync.RWMutex // locked while the gateway is down
	reloading  sync.Mutex
	generation int // of the gateway's configuration

	servers    []*rig.Process // model servers
	addresses  []string       // of the model servers
	deaths     [upstreams]atomic.Int32
	hosts      []*host
	relays     []*relay
	connectors []*connector

	deployments []*deployment   // all
	groups      [][]*deployment // each entry gets the same share of requests; a group may have several
	moving      []*deployment
	keys        keyring
	clients     *clients
	lastID      atomic.Int64
	log         *faultLog
	tally       *tally

	seenMu sync.Mutex
	seen   map[int64]sighting // requests that have reached a model server
}

// newSystem creates a system without processes. The context that it returns ends, with the cause, if a process
// ends unexpectedly.
func newSystem(ctx context.Context, o options) (_ context.Context, s *system, err error) {
	s = &system{o: o, clients: newClients(), log: &faultLog{}, seen: map[int64]sighting{}}
	s.tally = newTally(s.log)
	ctx, s.fail, s.rig, s.end, err = program().Rig(ctx, o.Bin)
	return ctx, s, err
}

// start starts everything, and returns when all connectors are online.
func (s *system) start(ctx context.Context) error {
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"starting model servers", s.startUpstreams},
		{"starting the gateway", s.startGateway},
		{"creating keys and connectors", s.register},
		{"starting connectors", s.startConnectors},
		{"creating deployments", s.deploy},
	} {
		command.Progress("%s", step.name)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return rig.Poll(ctx, recoveryLimit, poll, "having all connectors online", func(ctx context.Context) error {
		return s.recovered(ctx, nil)
	})
}

// startUpstreams starts the model servers.
func (s *system) startUpstreams(context.Context) error {
	for i := range upstreams {
		address, err := freeport.Addr()
		if err != nil {
			return err
		}
		p, _, err := program().Start(s.rig, fmt.Sprintf("model-server-%d", i), roleUpstream, nil, addressVariable+"="+address)
		if err != nil {
			return err
		}
		s.servers, s.addresses = append(s.servers, p), append(s.addresses, address)
	}
	return nil
}

func (s *system) startGateway(ctx context.Context) (err error) {
	if s.gateway, err = s.rig.Gateway(s.configuration()); err != nil {
		return err
	}
	return s.gateway.Start(ctx)
}

// configuration returns the configuration of the gateway. Each generation differs in two unimportant values.
func (s *system) configuration() rig.GatewayOptions {
	return rig.GatewayOptions{
		Global: "metrics", Grace: grace,
		Model: fmt.Sprintf("connect_wait %ds\nkeep_alive %ds", 3+s.generation%2, 5+s.generation%3),
	}
}

// persist calls change, which changes data at the gateway, and repeats it if there is no answer. A reload
// replaces Caddy's admin endpoint, which drops new connections. All of these changes may be repeated.
func persist(ctx context.Context, change func() error) error {
	err := change()
	var answered *rig.StatusError
	for tries := 1; err != nil && tries < 3 && !errors.As(err, &answered) &&
		command.Pause(ctx, 200*time.Millisecond) == nil; tries++ {
		err = change()
	}
	return err
}
