package main

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/postern-dev/postern/tests/command"
	"github.com/postern-dev/postern/tests/upstream/play"
)

// reloadGateway gives the gateway another configuration, as `caddy reload` does.
func reloadGateway(ctx context.Context, s *system, _ *rand.Rand) error {
	s.up.RLock()
	defer s.up.RUnlock()
	s.reloading.Lock()
	defer s.reloading.Unlock()
	s.generation++
	f := s.log.begin(&gatewayReloaded, nil, "generation %d", s.generation)
	defer s.log.end(f)
	if err := s.gateway.Configure(s.configuration()); err != nil {
		return err
	}
	if err := s.gateway.Reload(); err != nil && ctx.Err() == nil {
		s.tally.find("the gateway does not reload: %v", err)
	}
	return nil
}

// restartGateway restarts the gateway as a service manager does.
func restartGateway(ctx context.Context, s *system, _ *rand.Rand) error {
	f, err := s.replaceGateway(ctx, &gatewayRestarted, "SIGTERM", func() error {
		if err := s.gateway.Process.Terminate(time.Minute); err != nil {
			s.tally.find("%v", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.mend(ctx, f)
}

// killGateway kills the gateway, which is down for a moment then.
func killGateway(ctx context.Context, s *system, random *rand.Rand) error {
	down := upTo(random, 4*time.Second)
	f, err := s.replaceGateway(ctx, &gatewayKilled, "down for "+down.String(), func() error {
		s.gateway.Process.Kill()
		return command.Pause(ctx, down)
	})
	if err != nil {
		return err
	}
	return s.mend(ctx, f)
}

// replaceGateway ends the gateway and starts it again, while nobody manages it.
func (s *system) replaceGateway(ctx context.Context, kind *faultKind, note string, end func() error) (*fault, error) {
	s.up.Lock()
	defer s.up.Unlock()
	f := s.log.begin(kind, nil, "%s", note)
	if err := end(); err != nil {
		return nil, err
	}
	return f, s.gateway.Start(ctx)
}

// upTo returns a random time below limit, in milliseconds.
func upTo(random *rand.Rand, limit time.Duration) time.Duration {
	return time.Duration(random.Int64N(limit.Milliseconds())) * time.Millisecond
}

// killUpstream kills a model server, which is down for a moment then.
func killUpstream(ctx context.Context, s *system, random *rand.Rand) error {
	i := random.IntN(len(s.servers))
	behind := s.members(func(c *connector) bool { return c.server == i })
	f := s.log.begin(&upstreamKilled, behind, "model server %d", i)
	_, _ = s.visit(ctx, i) // what it knows dies with it
	s.deaths[i].Add(1)
	s.servers[i].Kill()
	if err := command.Pause(ctx, upTo(random, 4*time.Second)); err != nil {
		return err
	}
	if _, err := s.servers[i].StartAnnounced(); err != nil {
		return err
	}
	s.log.end(f)
	return nil
}

// moveDeployment lets a deployment lead to another connector.
func moveDeployment(ctx context.Context, s *system, random *rand.Rand) error {
	s.up.RLock()
	defer s.up.RUnlock()
	d, to := one(random, s.moving), random.IntN(len(s.connectors))
	f := s.log.begin(&deploymentMoved, []int{to}, "%s", d.name)
	defer s.log.end(f)
	return s.set(ctx, d, []int{to})
}

// makeKey makes a key that clients use from then on.
func makeKey(ctx context.Context, s *system, _ *rand.Rand) error {
	s.up.RLock()
	defer s.up.RUnlock()
	f := s.log.begin(&keyMade, nil, "")
	defer s.log.end(f)
	_, err := s.keys.create(ctx, s.gateway)
	return err
}

// revokeKey revokes a key that clients use, and tries it once more.
func revokeKey(ctx context.Context, s *system, random *rand.Rand) error {
	s.up.RLock()
	defer s.up.RUnlock()
	k := s.keys.take()
	if k == nil {
		return nil
	}
	f := s.log.begin(&keyRevoked, nil, "%s", k.id)
	defer s.log.end(f)
	if err := k.revoke(ctx, s.gateway); err != nil {
		return err
	}
	r := compose(random, s.nextID())
	r.model, r.key, r.habit, r.End, r.fresh = one(random, one(random, s.groups)), k, reads, play.Whole, true
	o := s.clients.send(ctx, r)
	for tries := 1; o.symptom == refused && tries < 3 && ctx.Err() == nil; tries++ { // a reload
		o = s.clients.send(ctx, r)
	}
	if o.symptom != unauthorized && ctx.Err() == nil {
		s.tally.find("key %s was revoked before this request:\n%s", k.id, o.story())
	}
	return nil
}
