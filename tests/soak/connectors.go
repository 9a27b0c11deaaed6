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

	"github.com/postern-dev/postern/tests/command"
)

// A connector is one of the gateway's. Some are processes of their own, the
// others share a few.
type connector struct {
	index    int
	name, id string
	server   int // the model server that it stands before
	relay    int // the bad path that it takes; -1: none
	host     int // the process that holds it; -1: its own
	process  *process
	config   string // the process's configuration file
}

// A host is a process that holds many connectors.
type host struct {
	process *process
	admin   admin
}

// register makes keys and connectors.
func (s *system) register(ctx context.Context) error {
	limits := map[string]int{"max_keys": 1_000_000, "max_connectors": s.o.Connectors + 100}
	var status *statusError // of a build without limits, which needs no others
	if err := s.admin.manage(ctx, http.MethodPatch, "/accounts/default", limits, nil); err != nil && !errors.As(err, &status) {
		return err
	}
	for range 4 {
		if _, err := s.keys.create(ctx, s.admin); err != nil {
			return err
		}
	}
	for i := range relays {
		r, err := newRelay(s.udp, s.o.random(uint64('r'+i)))
		if err != nil {
			return err
		}
		s.relays = append(s.relays, r)
	}
	configs := make([]bytes.Buffer, hosts)
	for i := range s.o.Connectors {
		c := &connector{index: i, name: fmt.Sprintf("c%d", i), server: i % upstreams, relay: -1, host: -1}
		s.connectors = append(s.connectors, c)
		config, err := s.configure(ctx, c)
		if err != nil {
			return err
		}
		if c.host >= 0 {
			configs[c.host].Write(config)
			continue
		}
		c.config = filepath.Join(s.dir, c.name+".json")
		if err := os.WriteFile(c.config, config, 0o600); err != nil {
			return fmt.Errorf("writing a connector's configuration: %w", err)
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
	return filepath.Join(s.dir, fmt.Sprintf("host-%d.json", i))
}

// configure makes a connector at the gateway, decides where it is and how it
// dials, and returns its configuration. Of those that share processes, every
// fifth takes a bad path, and every sixth uses the WebSocket; of the others,
// every fourth does that.
func (s *system) configure(ctx context.Context, c *connector) ([]byte, error) {
	var made struct {
		ID    string `json:"id"`
		Token string `json:"tunnel_token"`
	}
	if err := s.admin.manage(ctx, http.MethodPost, "/connectors", map[string]string{"name": c.name}, &made); err != nil {
		return nil, err
	}
	c.id = made.ID
	config := map[string]string{"tunnel_token": made.Token, "upstream": "http://" + s.addresses[c.server]}
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
	b, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("writing a connector's configuration: %w", err)
	}
	return append(b, '\n'), nil
}

// startConnectors starts the hosts and the connectors that are processes.
func (s *system) startConnectors(ctx context.Context) error {
	for i := range hosts {
		config, err := os.Open(s.hostConfig(i))
		if err != nil {
			return fmt.Errorf("reading configurations: %w", err)
		}
		defer config.Close()
		h := &host{process: s.process(fmt.Sprintf("host-%d", i), func() *exec.Cmd {
			cmd := program().InRole(roleHost)
			cmd.Stdin = config
			return cmd
		})}
		s.hosts = append(s.hosts, h)
		address, err := h.process.start(true)
		if err != nil {
			return err
		}
		h.admin = admin(address)
	}
	for _, c := range s.connectors[:s.o.Real] {
		c.process = s.process("connector-"+c.name, func() *exec.Cmd {
			return exec.Command(filepath.Join(s.bin, "connector"), "run", "--config", c.config)
		})
		if _, err := c.process.start(false); err != nil {
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
	return command.Until(ctx, recoveryLimit, poll, "having all connectors online", func() error {
		n, err := s.admin.online(ctx)
		if err == nil && n != s.o.Connectors {
			err = fmt.Errorf("%d of %d are", n, s.o.Connectors)
		}
		return err
	})
}

// recovered returns nil when connectors are online, all if nil is given;
// those that another fault holds are no matter.
func (s *system) recovered(ctx context.Context, connectors []int) error {
	list, err := s.admin.connectors(ctx)
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
		case online[c.name], connectors != nil && !slices.Contains(connectors, c.index):
		case connectors == nil && s.log.troubled(c.index):
		default:
			missing++
			example = c.name
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
