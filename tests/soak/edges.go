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
	name string // "" without a cluster
	line *relay // path from other edges to this one; nil without a cluster
}

// startGateways starts the gateway, or etcd and all edges.
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

// configuration returns the configuration of a gateway. Each generation differs in two unimportant values.
func (s *system) configuration(e *edge) rig.GatewayOptions {
	o := rig.GatewayOptions{
		Global: "metrics", Grace: grace,
		Model: fmt.Sprintf("connect_wait %ds\nkeep_alive %ds", 3+s.generation%2, 5+s.generation%3),
	}
	if e.name != "" {
		o.Name, o.Data, o.Storage = e.name, filepath.Join(s.rig.Dir, e.name), s.store
		o.App = "edge {\n name " + e.name + "\n advertise $UDP\n}"
		if e.line != nil {
			o.App = "edge {\n name " + e.name + "\n advertise " + e.line.front.LocalAddr().String() + "\n}"
		}
	}
	return o
}

// gateway returns the gateway for the next management request. Edges are used in turn.
func (s *system) gateway() *edge { return s.edges[int(s.turn.Add(1))%len(s.edges)] }

// In a cluster, faults of an edge affect its own clients. Clients of other edges notice only the end of
// requests that run over it.
var (
	edgeReloaded = &faultKind{
		name: "edge reloaded", atEdge: []symptom{refused, stale}, lingers: grace,
		make: reloadGateway,
	}
	edgeLane = lane{"edges", 20 * time.Second, 40, false, []*faultKind{
		edgeReloaded,
		{name: "edge restarted", atEdge: []symptom{refused, stale, offline, busy}, recovery: true, make: restartGateway},
		{
			name: "edge killed", excuses: []symptom{broken, cut}, atEdge: []symptom{refused, stale, offline, severed, busy},
			recovery: true, make: killGateway,
		},
		{name: "etcd killed", recovery: true, make: killEtcd},
		{name: "edge line slow and lossy", make: spoilLine(2*time.Second, 20*time.Second, func(random *rand.Rand) conditions {
			return conditions{loss: 0.005 + 0.025*random.Float64(), delay: upTo(random, 60*time.Millisecond)}
		})},
		{name: "edge line dark", atEdge: away, recovery: true, make: spoilLine(2*time.Second, 13*time.Second, dark)},
	}}
)

// lanes returns the lanes of the run.
func (o options) lanes() []lane {
	if o.Edges == 1 {
		return lanes
	}
	all := append([]lane{edgeLane}, lanes[1:]...)
	all[1].kinds = []*faultKind{edgeReloaded}
	return all
}

// killEtcd kills etcd and starts it again before waiting changes time out.
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

// spoilLine degrades the path from connectors to an edge for a while.
func spoilLine(shortest, longest time.Duration, choose func(*rand.Rand) conditions) maker {
	return func(ctx context.Context, s *system, random *rand.Rand, begin beginning) error {
		e, c, d := pick(random, s.edges), choose(random), s.duration(random, shortest, longest)
		begin(e, nil, "%s: %+v for %v", e.name, c, d)
		e.line.set(c)
		defer e.line.set(conditions{})
		return command.Pause(ctx, d)
	}
}
