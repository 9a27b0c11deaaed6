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

// How many of each there are.
const (
	hosts     = 4 // processes that hold the connectors that are not processes
	upstreams = 4 // model servers
	relays    = 5 // bad paths
)

const (
	// grace is how long the gateway gives what runs, when it ends or takes another
	// configuration: longer than all answers but those of clients that do not read.
	grace = 30 * time.Second
	// poll is the time between two looks at something that is awaited.
	poll = 250 * time.Millisecond
	// recoveryLimit is how long everything may take to be well again after a
	// fault, on a busy machine.
	recoveryLimit = 3 * time.Minute
)

// A system is everything that a run has started.
type system struct {
	o    options
	rig  *rig.Rig
	fail context.CancelCauseFunc
	end  func(keepLogs bool) error

	edges      []*edge
	turn       atomic.Int64 // of edges to be managed
	etcd       *rig.Process // of a cluster
	store      string       // of a cluster, as in the configuration
	balancer   string       // of a cluster: its address
	up         sync.RWMutex // locked while a gateway or etcd is being replaced
	reloading  sync.Mutex
	generation int // of the gateways' configuration

	servers    []*rig.Process // model servers
	addresses  []string       // theirs
	deaths     [upstreams]atomic.Int32
	hosts      []*host
	relays     []*relay
	connectors []*connector

	deployments []*deployment   // all
	groups      [][]*deployment // by the share of requests that they get
	moving      []*deployment
	keys        keyring
	clients     *clients
	lastID      atomic.Int64
	log         *faultLog
	tally       *tally

	seenMu sync.Mutex
	seen   map[int64]sighting // requests that have reached a model
}

// newSystem makes a system without processes. The context that it returns ends
// with the cause when one of its processes ends unasked.
func newSystem(ctx context.Context, o options) (_ context.Context, s *system, err error) {
	s = &system{o: o, clients: newClients(), log: &faultLog{}, seen: map[int64]sighting{}}
	s.tally = newTally(s.log)
	ctx, s.fail, s.rig, s.end, err = program().Rig(ctx, o.Keep, o.Bin)
	return ctx, s, err
}

// start starts everything, and returns when all connectors are online.
func (s *system) start(ctx context.Context) error {
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"starting model servers", s.startUpstreams},
		{"starting gateways", s.startGateways},
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

// persist calls what changes something at the gateway, and again if it gets no
// answer: a reload replaces Caddy's admin endpoint, which loses connections that
// are just being made. All such changes may be made twice.
func persist(ctx context.Context, change func() error) error {
	err := change()
	var answered *rig.StatusError
	for tries := 1; err != nil && tries < 3 && !errors.As(err, &answered) &&
		command.Pause(ctx, 200*time.Millisecond) == nil; tries++ {
		err = change()
	}
	return err
}
