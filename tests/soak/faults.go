package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/postern-dev/postern/tests/command"
	"github.com/postern-dev/postern/tests/rig"
	"github.com/postern-dev/postern/tests/upstream/play"
)

// A lane makes one fault after the other, while other lanes make theirs. Each of
// its kinds comes once before one comes again.
type lane struct {
	name string
	// rest is the mean of the pauses between two faults; in a short run it is a
	// share of the run's length.
	rest    time.Duration
	share   time.Duration
	manages bool // it is at rest while the gateway is being replaced
	kinds   []*faultKind
}

// What clients may notice of a connector that is away.
var away = []symptom{offline, broken, cut, busy}

// What is running goes on while a gateway reloads. But Go's HTTP server drops a
// connection whose request arrives just as it begins to shut down; and a kept
// connection whose stream began before the reload is closed at the end of that,
// when a client may send its next request: so HTTP/1.1 is.
var gatewayReloaded = &faultKind{
	name: "gateway reloaded", excuses: []symptom{refused, stale}, lingers: grace,
	make: reloadGateway,
}

// machineOverloaded is not made, but met: see pulse.
var machineOverloaded = &faultKind{name: "machine overloaded", excuses: away}

// The gateway is restarted and killed in the first part of a run only, in the first
// lane: what it holds is watched over the life that it has from then on.
var lanes = []lane{
	{"gateway", 20 * time.Second, 40, false, []*faultKind{
		gatewayReloaded,
		{name: "gateway restarted", excuses: []symptom{refused, stale, offline, busy}, mends: true, make: restartGateway},
		gatewayReloaded,
		{
			name: "gateway killed", excuses: []symptom{refused, stale, offline, broken, cut, severed, busy}, mends: true,
			make: killGateway,
		},
	}},
	{"configuration", 40 * time.Second, 10, true, []*faultKind{gatewayReloaded}},
	{"connectors", 4 * time.Second, 40, false, []*faultKind{
		{name: "connector killed", excuses: away, mends: true, make: killConnector},
		{name: "connector frozen", excuses: away, mends: true, make: freezeConnector(2*time.Second, 20*time.Second)},
		{name: "connector held up", make: freezeConnector(0, 700*time.Millisecond)},
		{name: "connector restarted", excuses: []symptom{offline}, mends: true, make: restartConnector},
		{name: "connector reloaded", make: reloadConnector},
		{name: "connector rotated", make: rotateConnector},
	}},
	{
		"hosts", 3 * time.Minute, 5, false,
		[]*faultKind{{name: "many connectors frozen", excuses: away, mends: true, make: freezeHost}},
	},
	{"paths", 4 * time.Second, 40, false, []*faultKind{
		// For less than a tunnel bears without a change of its transport.
		{name: "path lossy", make: spoilPath(2*time.Second, 20*time.Second, func(random *rand.Rand) conditions {
			return conditions{loss: 0.005 + 0.025*random.Float64()}
		})},
		{name: "path slow", make: spoilPath(2*time.Second, 20*time.Second, func(random *rand.Rand) conditions {
			return conditions{delay: 5*time.Millisecond + upTo(random, 120*time.Millisecond)}
		})},
		{name: "path rebound", make: rebindPath},
		{name: "path dark for a moment", make: spoilPath(0, 800*time.Millisecond, dark)},
		{name: "path dark", excuses: away, mends: true, make: spoilPath(2*time.Second, 13*time.Second, dark)},
	}},
	{
		"model servers", time.Minute, 6, false,
		[]*faultKind{{name: "model server killed", excuses: []symptom{broken, cut, busy}, make: killUpstream}},
	},
	{"management", 3 * time.Second, 40, true, []*faultKind{
		{name: "deployment moved", make: moveDeployment},
		{name: "key created", make: createKey},
		{name: "key revoked", make: revokeKey}, // its own requests alone: see cause
	}},
}

// lasts returns how long a fault lasts, less in a short run, so that it has some of
// each.
func (s *system) lasts(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + upTo(random, min(most, s.o.Length/12))
}

// own picks a connector that is a process.
func (s *system) own(random *rand.Rand) *connector { return one(random, s.connectors[:s.o.Real]) }

func killConnector(ctx context.Context, s *system, random *rand.Rand, begin beginning) error {
	c, down := s.own(random), s.lasts(random, 0, 15*time.Second)
	begin(nil, []int{c.index}, "down for %v", down)
	c.Process.Kill()
	if err := command.Pause(ctx, down); err != nil {
		return err
	}
	return c.Process.Start()
}

// freezeConnector stops a connector, for longer than its tunnel bears or for so
// short that nothing may happen.
func freezeConnector(least, most time.Duration) maker {
	return func(ctx context.Context, s *system, random *rand.Rand, begin beginning) error {
		c, stopped := s.own(random), s.lasts(random, least, most)
		begin(nil, []int{c.index}, "for %v", stopped)
		return freeze(ctx, c.Process, stopped)
	}
}

// freezeHost stops a quarter of all connectors at once.
func freezeHost(ctx context.Context, s *system, random *rand.Rand, begin beginning) error {
	i, stopped := random.IntN(hosts), s.lasts(random, 2*time.Second, 15*time.Second)
	begin(nil, s.members(func(c *connector) bool { return c.host == i }), "host %d for %v", i, stopped)
	return freeze(ctx, s.hosts[i].process, stopped)
}

// freeze stops a process for a while. It goes on even if ctx ends.
func freeze(ctx context.Context, p *rig.Process, d time.Duration) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	cause := command.Pause(ctx, d)
	return errors.Join(p.Signal(syscall.SIGCONT), cause)
}

// restartConnector restarts a connector as a service manager does: its requests
// end before it does.
func restartConnector(_ context.Context, s *system, random *rand.Rand, begin beginning) error {
	c := s.own(random)
	begin(nil, []int{c.index}, "SIGTERM")
	if err := c.Process.Terminate(time.Minute); err != nil {
		s.tally.find("%v", err)
	}
	return c.Process.Start()
}

// reloadConnector has a connector read its configuration again.
func reloadConnector(_ context.Context, s *system, random *rand.Rand, begin beginning) error {
	c := s.own(random)
	begin(nil, []int{c.index}, "SIGHUP")
	return c.Process.Signal(syscall.SIGHUP)
}

// rotateConnector gives a connector another token in band: its configuration
// must hold another one afterwards.
func rotateConnector(ctx context.Context, s *system, random *rand.Rand, begin beginning) error {
	c := s.own(random)
	before, err := os.ReadFile(c.Config)
	if err != nil {
		return fmt.Errorf("reading a connector's configuration: %w", err)
	}
	begin(nil, []int{c.index}, "")
	s.up.RLock()
	err = persist(ctx, func() error {
		return s.gateway().Admin.Manage(ctx, http.MethodPost, "/connectors/"+c.ID+"/rotate", struct{}{}, nil)
	})
	s.up.RUnlock()
	if err != nil {
		return err
	}
	err = rig.Poll(ctx, recoveryLimit, poll, "the rotation of "+c.Name, func(context.Context) error {
		after, err := os.ReadFile(c.Config)
		if err == nil && bytes.Equal(before, after) {
			err = errors.New("its configuration is as before")
		}
		return err
	})
	if err != nil && ctx.Err() == nil {
		s.tally.find("%v", err)
	}
	return nil
}

// dark stops all packets.
func dark(*rand.Rand) conditions { return conditions{dark: true} }

// spoilPath makes a path worse for a while, and good again even if ctx ends.
func spoilPath(least, most time.Duration, choose func(*rand.Rand) conditions) maker {
	return func(ctx context.Context, s *system, random *rand.Rand, begin beginning) error {
		i, c, d := random.IntN(relays), choose(random), s.lasts(random, least, most)
		begin(nil, s.members(func(c *connector) bool { return c.relay == i }), "%+v for %v", c, d)
		s.relays[i].set(c)
		defer s.relays[i].set(conditions{})
		return command.Pause(ctx, d)
	}
}

// rebindPath gives the connectors of a path other addresses, at once.
func rebindPath(_ context.Context, s *system, random *rand.Rand, begin beginning) error {
	i := random.IntN(relays)
	begin(nil, s.members(func(c *connector) bool { return c.relay == i }), "")
	s.relays[i].rebind()
	return nil
}

// reloadGateway gives a gateway another configuration, as `caddy reload` does.
func reloadGateway(ctx context.Context, s *system, random *rand.Rand, begin beginning) error {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	s.generation++
	e := one(random, s.edges)
	begin(e, nil, "%s generation %d", e.name, s.generation)
	if err := e.Configure(s.configuration(e)); err != nil {
		return err
	}
	if err := e.Reload(); err != nil && ctx.Err() == nil {
		s.tally.find("the gateway %s does not reload: %v", e.name, err)
	}
	return nil
}

// restartGateway restarts a gateway as a service manager does.
func restartGateway(ctx context.Context, s *system, random *rand.Rand, begin beginning) error {
	s.up.Lock()
	defer s.up.Unlock()
	e := one(random, s.edges)
	begin(e, nil, "%s: SIGTERM", e.name)
	if err := e.Process.Terminate(time.Minute); err != nil {
		s.tally.find("%v", err)
	}
	return e.Start(ctx)
}

// killGateway kills a gateway, which is down for a moment then.
func killGateway(ctx context.Context, s *system, random *rand.Rand, begin beginning) error {
	s.up.Lock()
	defer s.up.Unlock()
	e, down := one(random, s.edges), upTo(random, 4*time.Second)
	begin(e, nil, "%s: down for %v", e.name, down)
	e.Process.Kill()
	if err := command.Pause(ctx, down); err != nil {
		return err
	}
	return e.Start(ctx)
}

// killUpstream kills a model server, which is down for a moment then.
func killUpstream(ctx context.Context, s *system, random *rand.Rand, begin beginning) error {
	i := random.IntN(len(s.servers))
	begin(nil, s.members(func(c *connector) bool { return c.server == i }), "model server %d", i)
	_, _ = s.visit(ctx, i) // what it knows dies with it
	s.deaths[i].Add(1)
	s.servers[i].Kill()
	if err := command.Pause(ctx, upTo(random, 4*time.Second)); err != nil {
		return err
	}
	_, err := s.servers[i].StartAnnounced()
	return err
}

// moveDeployment lets a deployment lead to another connector.
func moveDeployment(ctx context.Context, s *system, random *rand.Rand, begin beginning) error {
	d, to := one(random, s.moving), random.IntN(len(s.connectors))
	begin(nil, []int{to}, "%s", d.name)
	return s.set(ctx, d, to)
}

// createKey creates a key that clients use from then on.
func createKey(ctx context.Context, s *system, _ *rand.Rand, begin beginning) error {
	begin(nil, nil, "")
	return s.keys.create(ctx, s.gateway().Gateway)
}

// revokeKey revokes a key that clients use, and tries it once more.
func revokeKey(ctx context.Context, s *system, random *rand.Rand, begin beginning) error {
	k := s.keys.take()
	if k == nil {
		return nil
	}
	begin(nil, nil, "%s", k.id)
	if err := k.revoke(ctx, s.gateway().Gateway); err != nil {
		return err
	}
	r := compose(random, s.lastID.Add(1))
	r.model, r.key, r.edge, r.habit, r.End,
		r.fresh = one(random, one(random, s.groups)), k, one(random, s.edges), reads, play.Whole, true
	o := s.clients.send(ctx, r)
	for tries := 1; o.symptom == refused && tries < 3 && ctx.Err() == nil; tries++ { // a reload
		o = s.clients.send(ctx, r)
	}
	if o.symptom != unauthorized && ctx.Err() == nil {
		s.tally.find("key %s was revoked before this request:\n%s", k.id, o.story())
	}
	return nil
}
