package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/postern-dev/postern/tests/rig"
)

// A connector is one of the gateway's. Some are processes of their own, the
// others share a few.
type connector struct {
	*rig.Connector // its process is nil if a host holds it

	index  int
	server int // the model server that it stands before
	relay  int // the bad path that it takes; -1: none
	host   int // the process that holds it; -1: its own
}

// A host is a process that holds many connectors.
type host struct {
	process *rig.Process
	admin   rig.Admin
}

// register makes keys and connectors.
func (s *system) register(ctx context.Context) error {
	limits := map[string]int{"max_keys": 1_000_000, "max_connectors": s.o.Connectors + 100}
	var status *rig.StatusError // of a build without limits, which needs no others
	if err := s.gateway.Admin.Manage(ctx, http.MethodPatch, "/accounts/default", limits, nil); err != nil && !errors.As(err, &status) {
		return err
	}
	for range 4 {
		if _, err := s.keys.create(ctx, s.gateway); err != nil {
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

// hostConfig is the file with the configurations of a host's connectors.
func (s *system) hostConfig(i int) string {
	return filepath.Join(s.rig.Dir, fmt.Sprintf("host-%d.json", i))
}

// configure decides where a connector is and how it dials, and returns its
// configuration. Of those that share processes, every fifth takes a bad path, and
// every sixth uses the WebSocket; of the others, every fourth does that.
func (s *system) configure(c *connector) map[string]any {
	config := map[string]any{"upstream": "http://" + s.addresses[c.server]}
	switch i := c.index; {
	case i < s.o.Real && i%4 == 3:
		config["transport"] = "websocket"
	case i < s.o.Real:
	case i%5 == 0:
		c.relay = i / 5 % relays
		config["server"] = s.relays[c.relay].address()
	case i%6 == 1:
		config["transport"] = "websocket"
	}
	if c.index >= s.o.Real {
		c.host = c.index % hosts
	}
	return config
}

// startConnectors starts the hosts and the connectors that are processes.
func (s *system) startConnectors(ctx context.Context) error {
	for i := range hosts {
		config, err := os.Open(s.hostConfig(i))
		if err != nil {
			return fmt.Errorf("reading configurations: %w", err)
		}
		defer config.Close()
		p, err := s.rig.Process(fmt.Sprintf("host-%d", i), func() *exec.Cmd {
			cmd := program().InRole(roleHost)
			cmd.Stdin = config
			return cmd
		})
		if err != nil {
			return err
		}
		address, err := p.StartAnnounced()
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
	return ctx.Err()
}

// recoveryLimit is how long everything may take to be well again after a
// fault, on a busy machine.
const recoveryLimit = 3 * time.Minute

// waitOnline waits until all connectors are.
func (s *system) waitOnline(ctx context.Context) error {
	return rig.Poll(ctx, recoveryLimit, poll, "having all connectors online", func(ctx context.Context) error {
		return s.gateway.Admin.ExpectOnline(ctx, s.o.Connectors)
	})
}

// recovered returns nil when connectors are online, all if nil is given;
// those that another fault holds are no matter.
func (s *system) recovered(ctx context.Context, connectors []int) error {
	list, err := s.gateway.Admin.Connectors(ctx)
	if err != nil {
		return err
	}
	online := map[string]bool{}
	for _, l := range list {
		online[l.Name] = l.State == "online"
	}
	missing := 0
	example := ""
	for _, c := range s.connectors {
		switch {
		case online[c.Name], connectors != nil && !slices.Contains(connectors, c.index):
		case connectors == nil && s.log.troubled(c.index):
		default:
			missing++
			example = c.Name
		}
	}
	if missing > 0 {
		return fmt.Errorf("%d connectors are offline, %s among them", missing, example)
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

// deploy makes the deployments: one for each connector, some with two of them,
// and some that will be moved. What is small in number gets its share of the
// requests all the same, so that faults find some running.
func (s *system) deploy(ctx context.Context) error {
	var own, bad, good, double []*deployment
	add := func(group *[]*deployment, d *deployment, connectors ...int) error {
		*group = append(*group, d)
		return s.set(ctx, d, connectors)
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
