package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"syscall"
	"time"

	"github.com/postern-dev/postern/tests/command"
	"github.com/postern-dev/postern/tests/rig"
	"github.com/postern-dev/postern/tests/upstream/play"
)

// A lane causes one fault after the other, in parallel with other lanes. It uses all of its kinds before it
// repeats one.
type lane struct {
	name string
	// rest is the mean pause between two faults. A short run uses a share of the run's length instead.
	rest    time.Duration
	share   time.Duration
	manages bool // paused while the gateway is being replaced
	kinds   []*faultKind
}

// Symptoms of a connector that is disconnected.
var away = []symptom{offline, broken, cut, busy}

// Running requests continue during a reload. But Go's HTTP/1.1 server drops a connection whose request arrives
// just as it begins to shut down. It also closes an idle connection whose stream began before the reload when
// that stream ends, which may be when the client sends its next request.
var gatewayReloaded = &faultKind{
	name: "gateway reloaded", excuses: []symptom{refused, stale}, lingers: grace,
	make: reloadGateway,
}

// machineOverloaded is detected, see pulse. No lane causes it.
var machineOverloaded = &faultKind{name: "machine overloaded", excuses: away}

// The first lane, which restarts and kills the gateway, runs only in the first part of a run. In the rest, the
// memory of the same process is observed.
var lanes = []lane{
	{"gateway", 20 * time.Second, 40, false, []*faultKind{
		gatewayReloaded,
		{name: "gateway restarted", excuses: []symptom{refused, stale, offline, busy}, recovery: true, make: restartGateway},
		gatewayReloaded,
		{
			name: "gateway killed", excuses: []symptom{refused, stale, offline, broken, cut, severed, busy}, recovery: true,
			make: killGateway,
		},
	}},
	{"configuration", 40 * time.Second, 10, true, []*faultKind{gatewayReloaded}},
	{"connectors", 4 * time.Second, 40, false, []*faultKind{
		{name: "connector killed", excuses: away, recovery: true, make: killConnector},
		{name: "connector frozen", excuses: away, recovery: true, make: freezeConnector(2*time.Second, 20*time.Second)},
		{name: "connector stalled", make: freezeConnector(0, 700*time.Millisecond)},
		{name: "connector restarted", excuses: []symptom{offline}, recovery: true, make: restartConnector},
		{name: "connector reloaded", make: reloadConnector},
		{name: "connector rotated", make: rotateConnector},
	}},
	{
		"hosts", 3 * time.Minute, 5, false,
		[]*faultKind{{name: "many connectors frozen", excuses: away, recovery: true, make: freezeHost}},
	},
	{"paths", 4 * time.Second, 40, false, []*faultKind{
		// After a longer time of loss, tunnels would change their transport.
		{name: "path lossy", make: spoilPath(2*time.Second, 20*time.Second, func(random *rand.Rand) conditions {
			return conditions{loss: 0.005 + 0.025*random.Float64()}
		})},
		{name: "path slow", make: spoilPath(2*time.Second, 20*time.Second, func(random *rand.Rand) conditions {
			return conditions{delay: 5*time.Millisecond + upTo(random, 120*time.Millisecond)}
		})},
		{name: "path rebound", make: rebindPath},
		{name: "path dark for a moment", make: spoilPath(0, 800*time.Millisecond, dark)},
		{name: "path dark", excuses: away, recovery: true, make: spoilPath(2*time.Second, 13*time.Second, dark)},
	}},
	{
		"model servers", time.Minute, 6, false,
		[]*faultKind{{name: "model server killed", excuses: []symptom{broken, cut, busy}, make: killUpstream}},
	},
	{"management", 3 * time.Second, 40, true, []*faultKind{
		{name: "deployment moved", make: moveDeployment},
		{name: "key created", make: createKey},
		{name: "key revoked", make: revokeKey}, // affects only requests with this key, see cause
	}},
}

// duration returns a random duration of a fault. It is shorter in a short run, so that each kind of fault
// occurs.
func (s *system) duration(random *rand.Rand, shortest, longest time.Duration) time.Duration {
	return shortest + upTo(random, min(longest, s.o.Length/12))
}

// ownProcess returns a random connector that has its own process.
func (s *system) ownProcess(random *rand.Rand) *connector {
	return pick(random, s.connectors[:s.o.Real])
}

func killConnector(ctx context.Context, s *system, random *rand.Rand, begin beginning) error {
	c, down := s.ownProcess(random), s.duration(random, 0, 15*time.Second)
	begin([]int{c.index}, "down for %v", down)
	c.Process.Kill()
	if err := command.Pause(ctx, down); err != nil {
		return err
	}
	return c.Process.Start()
}

// freezeConnector stops a connector's process for a while. Its tunnel is lost after some seconds. Clients must
// not notice a shorter stop.
func freezeConnector(shortest, longest time.Duration) maker {
	return func(ctx context.Context, s *system, random *rand.Rand, begin beginning) error {
		c, stopped := s.ownProcess(random), s.duration(random, shortest, longest)
		begin([]int{c.index}, "for %v", stopped)
		return freeze(ctx, c.Process, stopped)
	}
}

// freezeHost stops a host, and with it a quarter of all connectors.
func freezeHost(ctx context.Context, s *system, random *rand.Rand, begin beginning) error {
	i, stopped := random.IntN(hosts), s.duration(random, 2*time.Second, 15*time.Second)
	begin(s.members(func(c *connector) bool { return c.host == i }), "host %d for %v", i, stopped)
	return freeze(ctx, s.hosts[i].process, stopped)
}

// freeze stops a process for a while. It continues the process even if ctx ends.
func freeze(ctx context.Context, p *rig.Process, d time.Duration) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	cause := command.Pause(ctx, d)
	return errors.Join(p.Signal(syscall.SIGCONT), cause)
}

// restartConnector restarts a connector as a service manager does. The connector finishes its requests first.
func restartConnector(_ context.Context, s *system, random *rand.Rand, begin beginning) error {
	c := s.ownProcess(random)
	begin([]int{c.index}, "SIGTERM")
	if err := c.Process.Terminate(time.Minute); err != nil {
		s.tally.find("%v", err)
	}
	return c.Process.Start()
}

// reloadConnector makes a connector read its configuration again.
func reloadConnector(_ context.Context, s *system, random *rand.Rand, begin beginning) error {
	c := s.ownProcess(random)
	begin([]int{c.index}, "SIGHUP")
	return c.Process.Signal(syscall.SIGHUP)
}

// rotateConnector rotates a connector's token with grace, and writes the new one into its configuration.
func rotateConnector(ctx context.Context, s *system, random *rand.Rand, begin beginning) error {
	c := s.ownProcess(random)
	before, err := os.ReadFile(c.Config)
	if err != nil {
		return fmt.Errorf("reading a connector's configuration: %w", err)
	}
	begin([]int{c.index}, "")
	var rotated struct {
		Token string `json:"tunnel_token"`
	}
	s.up.RLock()
	err = persist(ctx, func() error {
		grace := map[string]string{"grace": "1h"}
		return s.gateway.Admin.Manage(ctx, http.MethodPost, "/connectors/"+c.ID+"/rotate", grace, &rotated)
	})
	s.up.RUnlock()
	if err != nil {
		return err
	}
	after := tunnelToken.ReplaceAll(before, []byte(rotated.Token))
	if err := os.WriteFile(c.Config, after, 0o600); err != nil {
		return fmt.Errorf("writing a connector's configuration: %w", err)
	}
	return c.Process.Signal(syscall.SIGHUP)
}

var tunnelToken = regexp.MustCompile(`ptt_[\w-]+`)

// dark drops all packets.
func dark(*rand.Rand) conditions { return conditions{dark: true} }

// spoilPath degrades a path for a while. It restores the path even if ctx ends.
func spoilPath(shortest, longest time.Duration, choose func(*rand.Rand) conditions) maker {
	return func(ctx context.Context, s *system, random *rand.Rand, begin beginning) error {
		i, c, d := random.IntN(relays), choose(random), s.duration(random, shortest, longest)
		begin(s.members(func(c *connector) bool { return c.relay == i }), "%+v for %v", c, d)
		s.relays[i].set(c)
		defer s.relays[i].set(conditions{})
		return command.Pause(ctx, d)
	}
}

// rebindPath changes the source addresses of all connectors of a path at once.
func rebindPath(_ context.Context, s *system, random *rand.Rand, begin beginning) error {
	i := random.IntN(relays)
	begin(s.members(func(c *connector) bool { return c.relay == i }), "")
	s.relays[i].rebind()
	return nil
}

// reloadGateway changes the configuration of the gateway with `caddy reload`.
func reloadGateway(ctx context.Context, s *system, _ *rand.Rand, begin beginning) error {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	s.generation++
	begin(nil, "generation %d", s.generation)
	if err := s.gateway.Configure(s.configuration()); err != nil {
		return err
	}
	if err := s.gateway.Reload(); err != nil && ctx.Err() == nil {
		s.tally.find("the gateway failed to reload: %v", err)
	}
	return nil
}

// restartGateway restarts the gateway as a service manager does.
func restartGateway(ctx context.Context, s *system, _ *rand.Rand, begin beginning) error {
	s.up.Lock()
	defer s.up.Unlock()
	begin(nil, "SIGTERM")
	if err := s.gateway.Process.Terminate(time.Minute); err != nil {
		s.tally.find("%v", err)
	}
	return s.gateway.Start(ctx)
}

// killGateway kills the gateway and starts it again after a moment.
func killGateway(ctx context.Context, s *system, random *rand.Rand, begin beginning) error {
	s.up.Lock()
	defer s.up.Unlock()
	down := upTo(random, 4*time.Second)
	begin(nil, "down for %v", down)
	s.gateway.Process.Kill()
	if err := command.Pause(ctx, down); err != nil {
		return err
	}
	return s.gateway.Start(ctx)
}

// killUpstream kills a model server and starts it again after a moment.
func killUpstream(ctx context.Context, s *system, random *rand.Rand, begin beginning) error {
	i := random.IntN(len(s.servers))
	begin(s.members(func(c *connector) bool { return c.server == i }), "model server %d", i)
	_, _ = s.readReport(ctx, i) // its report is lost when it dies
	s.deaths[i].Add(1)
	s.servers[i].Kill()
	if err := command.Pause(ctx, upTo(random, 4*time.Second)); err != nil {
		return err
	}
	_, err := s.servers[i].StartAnnounced()
	return err
}

// moveDeployment changes the route of a deployment to another connector.
func moveDeployment(ctx context.Context, s *system, random *rand.Rand, begin beginning) error {
	d, target := pick(random, s.moving), random.IntN(len(s.connectors))
	begin([]int{target}, "%s", d.name)
	return s.set(ctx, d, target)
}

// createKey creates a key that clients use from now on.
func createKey(ctx context.Context, s *system, _ *rand.Rand, begin beginning) error {
	begin(nil, "")
	return s.keys.create(ctx, s.gateway)
}

// revokeKey revokes a key and checks that a request with it fails.
func revokeKey(ctx context.Context, s *system, random *rand.Rand, begin beginning) error {
	k := s.keys.take()
	if k == nil {
		return nil
	}
	begin(nil, "%s", k.id)
	if err := k.revoke(ctx, s.gateway); err != nil {
		return err
	}
	r := compose(random, s.lastID.Add(1))
	r.model, r.key, r.gateway = pick(random, pick(random, s.groups)), k, s.gateway
	r.habit, r.End, r.fresh = reads, play.Whole, true
	o := s.clients.send(ctx, r)
	for attempt := 1; o.symptom == refused && attempt < 3 && ctx.Err() == nil; attempt++ { // refused because of a reload
		o = s.clients.send(ctx, r)
	}
	if o.symptom != unauthorized && ctx.Err() == nil {
		s.tally.find("key %s was revoked before this request:\n%s", k.id, o.story())
	}
	return nil
}
