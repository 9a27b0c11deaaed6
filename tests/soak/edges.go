package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/postern-dev/postern/tests/command"
	"github.com/postern-dev/postern/tests/rig"
)

// An edge is a gateway: the only one, or one of a cluster.
type edge struct {
	*rig.Gateway
	name string // "" of the only one
	line *relay // the path from the others to it; nil of the only one
}

// startGateways starts the gateway, or etcd and all edges, for the first time.
func (s *system) startGateways(ctx context.Context) (err error) {
	url := ""
	if s.o.Edges > 1 {
		if s.etcd, url, err = s.rig.Etcd(ctx); err != nil {
			return err
		}
		s.store = "etcd {\n endpoints " + url + "\n}"
	}
	for i := range s.o.Edges {
		e := &edge{}
		if s.o.Edges > 1 {
			e.name = fmt.Sprintf("edge-%d", i)
		}
		if e.Gateway, err = s.rig.Gateway(s.configuration(e)); err != nil {
			return err
		}
		if s.o.Edges > 1 {
			if e.line, err = newRelay(e.UDP, s.o.random(uint64('e'+i))); err != nil {
				return err
			}
			if err = e.Configure(s.configuration(e)); err != nil {
				return err
			}
		}
		if err = e.Start(ctx); err != nil {
			return err
		}
		s.edges = append(s.edges, e)
	}
	if s.o.Edges > 1 {
		s.balancer, err = newBalancer(s.edges)
	}
	return err
}

// configuration is that of a gateway. Each generation of it differs in two values that matter
// little.
func (s *system) configuration(e *edge) rig.GatewayOptions {
	o := rig.GatewayOptions{
		Global: "metrics", Grace: grace,
		Model: fmt.Sprintf("connect_wait %ds\nkeep_alive %ds", 3+s.generation%2, 5+s.generation%3),
	}
	if e.name != "" {
		o.Name, o.Data, o.Storage = e.name, filepath.Join(s.rig.Dir, e.name), s.store
		o.App = "edge {\n name " + e.name + "\n advertise $UDP\n}"
		if e.line != nil {
			o.App = "edge {\n name " + e.name + "\n advertise $UDP\n peer " + e.line.front.LocalAddr().String() + "\n}"
		}
	}
	return o
}

// gateway returns one that is managed next. All of a cluster take turns.
func (s *system) gateway() *edge { return s.edges[int(s.turn.Add(1))%len(s.edges)] }

// legs is how many tunnels a connector has.
func (s *system) legs() int { return min(2, s.o.Edges) }

// In a cluster, the clients of an edge notice what happens to it. Others notice only that a
// request which runs over it ends.
var (
	edgeReloaded = &faultKind{name: "edge reloaded", there: []symptom{refused, stale}, lingers: grace, make: reloadGateway}
	edgeLane     = lane{"edges", 20 * time.Second, 40, false, []*faultKind{
		edgeReloaded,
		{name: "edge restarted", there: []symptom{refused, stale, offline, busy}, mends: true, make: restartGateway},
		{
			name: "edge killed", excuses: []symptom{broken, cut}, there: []symptom{refused, stale, offline, severed, busy},
			mends: true, make: killGateway,
		},
		{name: "etcd killed", mends: true, make: killEtcd},
		{name: "peer line slow and lossy", make: spoilLine(2*time.Second, 20*time.Second, func(random *rand.Rand) conditions {
			return conditions{loss: 0.005 + 0.025*random.Float64(), delay: upTo(random, 60*time.Millisecond)}
		})},
		{name: "peer line dark", there: away, mends: true, make: spoilLine(2*time.Second, 13*time.Second, dark)},
	}}
)

// lanes returns those of the run.
func (o options) lanes() []lane {
	if o.Edges == 1 {
		return lanes
	}
	all := append([]lane{edgeLane}, lanes[1:]...)
	all[1].kinds = []*faultKind{edgeReloaded}
	return all
}

// killEtcd kills etcd, which is down for less time than changes wait.
func killEtcd(ctx context.Context, s *system, random *rand.Rand, begin beginning) error {
	s.up.Lock()
	defer s.up.Unlock()
	down := upTo(random, 4*time.Second)
	begin(nil, nil, "down for %v", down)
	s.etcd.Kill()
	if err := command.Pause(ctx, down); err != nil {
		return err
	}
	return s.etcd.Start()
}

// spoilLine makes the path from the other edges to one of them worse for a while.
func spoilLine(least, most time.Duration, choose func(*rand.Rand) conditions) maker {
	return func(ctx context.Context, s *system, random *rand.Rand, begin beginning) error {
		e, c, d := one(random, s.edges), choose(random), s.lasts(random, least, most)
		begin(e, nil, "%s: %+v for %v", e.name, c, d)
		e.line.set(c)
		defer e.line.set(conditions{})
		return command.Pause(ctx, d)
	}
}
