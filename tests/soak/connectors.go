package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/tests/rig"
)

// A connector is a connector of the gateway. A few run in their own processes, the others in the hosts.
type connector struct {
	*rig.Connector // without a process if it runs in a host

	index  int
	server int // index of its model server
	relay  int // index of its relay; -1: none
	host   int // index of its host; -1: its own process
}

// A host is a process that runs many connectors.
type host struct {
	process *rig.Process
	admin   rig.Admin
}

// register creates keys and connectors.
func (s *system) register(ctx context.Context) error {
	limits := map[string]int{"max_keys": 1_000_000, "max_connectors": s.o.Connectors + 100}
	if err := s.gateway.Admin.Manage(ctx, http.MethodPatch, "/accounts/default", limits, nil); err != nil {
		return err
	}
	for range 4 {
		if err := s.keys.create(ctx, s.gateway); err != nil {
			return err
		}
	}
	for i := range relays {
		r, err := newRelay(s.gateway.UDP, s.o.random(uint64('r'+i)))
		if err != nil {
			return err
		}
		s.relays = append(s.relays, r)
	}
	configs := make([]bytes.Buffer, hosts)
	for i := range s.o.Connectors {
		c := &connector{index: i, server: i % upstreams, relay: -1, host: -1}
		s.connectors = append(s.connectors, c)
		var err error
		if c.Connector, err = s.gateway.CreateConnector(ctx, fmt.Sprintf("c%d", i)); err != nil {
			return err
		}
		config := s.configure(c)
		if c.host < 0 {
			err = c.Configure(config)
		} else {
			config["tunnel_token"] = c.Token
			err = json.NewEncoder(&configs[c.host]).Encode(config)
		}
		if err != nil {
			return err
		}
	}
	for i := range configs {
		if err := os.WriteFile(s.hostConfig(i), configs[i].Bytes(), 0o600); err != nil {
			return fmt.Errorf("writing the connectors' configurations: %w", err)
		}
	}
	return nil
}

// hostConfig returns the path of the file with the configurations of a host's connectors.
func (s *system) hostConfig(i int) string {
	return filepath.Join(s.rig.Dir, fmt.Sprintf("host-%d.json", i))
}

// configure assigns a connector to a process and a path, and returns its configuration. In the hosts, every
// fifth connector uses a relay and every sixth the WebSocket. Of the connectors with their own process, every
// fourth uses the WebSocket.
func (s *system) configure(c *connector) map[string]any {
	config := map[string]any{"upstream": "http://" + s.addresses[c.server]}
	i, real := c.index, c.index < s.o.Real
	switch {
	case real && i%4 == 3, !real && i%5 != 0 && i%6 == 1:
		config["transport"] = "websocket"
	case !real && i%5 == 0:
		c.relay = i / 5 % relays
		config["server"] = s.relays[c.relay].front.LocalAddr().String()
	}
	if !real {
		c.host = i % hosts
	}
	return config
}

// startConnectors starts the hosts and the connectors with their own processes.
func (s *system) startConnectors(context.Context) error {
	for i := range hosts {
		config, err := os.Open(s.hostConfig(i))
		if err != nil {
			return fmt.Errorf("reading configurations: %w", err)
		}
		defer config.Close()
		p, address, err := program().Start(s.rig, fmt.Sprintf("host-%d", i), roleHost, config)
		if err != nil {
			return err
		}
		s.hosts = append(s.hosts, &host{p, rig.Admin(address)})
	}
	for _, c := range s.connectors[:s.o.Real] {
		if err := c.Launch(); err != nil {
			return err
		}
	}
	return nil
}

// recovered returns nil when the connectors are online. If connectors is nil, all must be online, except for those that
// another fault takes offline.
func (s *system) recovered(ctx context.Context, connectors []int) error {
	list, err := s.gateway.Connectors(ctx)
	if err != nil {
		return err
	}
	online := map[string]bool{}
	for _, l := range list {
		online[l.Name] = l.State == "online"
	}
	missing := s.members(func(c *connector) bool {
		if connectors == nil {
			return !online[c.Name] && !s.log.troubled(c.index)
		}
		return !online[c.Name] && slices.Contains(connectors, c.index)
	})
	if len(missing) > 0 {
		return fmt.Errorf("connectors %v are offline, or lack a tunnel", missing)
	}
	return nil
}

// members returns the connectors for which choose returns true.
func (s *system) members(choose func(*connector) bool) []int {
	var all []int
	for _, c := range s.connectors {
		if choose(c) {
			all = append(all, c.index)
		}
	}
	return all
}

// A deployment is a public model name, with the routes that it has had.
type deployment struct {
	name string
	max  int // max_concurrency

	mu     sync.Mutex
	routes []route // the last one is current
}

// A route is the list of connectors of a deployment for some time.
type route struct {
	connectors []int
	from       time.Time // before the change was sent
	until      time.Time // after the change to the next route; zero: it is current
}

// deploy creates the deployments: one for each connector, some with two connectors, and some that move. Each
// group gets a fixed share of the requests, so that faults of small groups find running requests.
func (s *system) deploy(ctx context.Context) error {
	var own, bad, good, double []*deployment
	add := func(group *[]*deployment, d *deployment, connectors ...int) error {
		*group, s.deployments = append(*group, d), append(s.deployments, d)
		return s.set(ctx, d, connectors...)
	}
	for i, c := range s.connectors {
		group := &good
		if c.host < 0 {
			group = &own
		} else if c.relay >= 0 {
			group = &bad
		}
		if err := add(group, &deployment{name: fmt.Sprintf("m-%d", i)}, i); err != nil {
			return err
		}
	}
	for i := range s.o.Real {
		d := &deployment{name: fmt.Sprintf("double-%d", i), max: i % 2 * 8}
		if err := add(&double, d, i, len(s.connectors)-1-i); err != nil {
			return err
		}
	}
	for i := range 4 {
		if err := add(&s.moving, &deployment{name: fmt.Sprintf("moving-%d", i)}, s.o.Real+i); err != nil {
			return err
		}
	}
	s.groups = [][]*deployment{own, own, own, double, double, s.moving, bad, bad, good, good}
	return nil
}

// set creates the deployment, or changes its route.
func (s *system) set(ctx context.Context, d *deployment, connectors ...int) error {
	names := make([]string, len(connectors))
	for i, c := range connectors {
		names[i] = s.connectors[c].Name
	}
	d.mu.Lock()
	d.routes = append(d.routes, route{connectors: connectors, from: time.Now()})
	d.mu.Unlock()
	body := map[string]any{"connectors": names, "max_concurrency": d.max}
	if err := persist(ctx, func() error { return s.gateway.Deploy(ctx, d.name, body) }); err != nil {
		return fmt.Errorf("setting deployment %s: %w", d.name, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if earlier := len(d.routes) - 2; earlier >= 0 {
		d.routes[earlier].until = time.Now()
	}
	return nil
}

// routesDuring returns the routes that the deployment had during a request.
func (d *deployment) routesDuring(from, until time.Time) (all [][]int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range d.routes {
		if !h.from.After(until) && (h.until.IsZero() || !h.until.Before(from)) {
			all = append(all, h.connectors)
		}
	}
	return all
}

// A key is an API key, valid or revoked.
type key struct {
	id, secret string
	revoked    atomic.Int64 // start of its revocation, in Unix nanoseconds; 0: it is valid
}

// revokedBy reports whether the key's revocation had begun at this time.
func (k *key) revokedBy(t time.Time) bool {
	from := k.revoked.Load()
	return from != 0 && t.UnixNano() >= from
}

// revoke revokes a key.
func (k *key) revoke(ctx context.Context, g *rig.Gateway) error {
	k.revoked.Store(time.Now().UnixNano())
	return persist(ctx, func() error { return g.Admin.Manage(ctx, http.MethodDelete, "/keys/"+k.id, nil, nil) })
}

// A keyring has the keys that clients use. The first one stays, the others are created and revoked.
type keyring struct {
	mu      sync.Mutex
	keys    []*key
	created atomic.Int64
}

func (k *keyring) any(random *rand.Rand) *key {
	k.mu.Lock()
	defer k.mu.Unlock()
	return pick(random, k.keys)
}

// create creates a key for clients to use.
func (k *keyring) create(ctx context.Context, g *rig.Gateway) error {
	fresh := &key{}
	err := persist(ctx, func() (err error) {
		fresh.id, fresh.secret, err = g.Key(ctx, fmt.Sprintf("soak-%d", k.created.Add(1)), "*")
		return err
	})
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys = append(k.keys, fresh)
	return nil
}

// take removes the oldest key after the first one from the keyring and returns it; nil if there are few.
func (k *keyring) take() *key {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.keys) < 3 {
		return nil
	}
	oldest := k.keys[1]
	k.keys = slices.Delete(k.keys, 1, 2)
	return oldest
}
