//go:build linux

package cluster

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/rig"
	"github.com/postern-dev/postern/tests/rig/lab"
	"github.com/postern-dev/postern/tests/upstream"
)

const (
	patience   = harness.Patience
	connectors = 4
	// balancer is the address that connectors have. It leads to any of the edges.
	balancer = "10.98.0.250:7443"
)

// An edge is a gateway on a machine of its own.
type edge struct {
	*harness.Gateway
	name    string
	machine *lab.Namespace
	address netip.Addr
}

// restart starts the edge again, which must have ended.
func (e *edge) restart(t *testing.T) {
	t.Helper()
	e.machine.Do(func() { e.Gateway.Restart(t) })
}

// A system is three edges, three members of etcd, and connectors with a model server at home.
// "m-N" is the model of connector N.
type system struct {
	t       *testing.T // what is started ends with it
	network *lab.Switch
	here    string // address of this process
	home    *lab.Lab
	up      *upstream.Server
	hook    *hook
	edges   []*edge
	boxes   []*harness.Connector
	stores  []netip.Addr // addresses of etcd's members
	key     string
}

func newSystem(t *testing.T) *system {
	t.Helper()
	network, here, err := lab.NewSwitch()
	must(t, err)
	t.Cleanup(network.Close)
	s := &system{t: t, network: network, here: here}
	s.home, err = network.Lab()
	must(t, err)
	s.home.Home.Do(func() { s.up = upstream.Start(t) })
	s.up.Handle("", upstream.Echo)
	s.hook = newHook(t, here)
	urls := s.startEtcd(t)
	for _, name := range []string{"edge-a", "edge-b", "edge-c"} {
		s.startEdge(t, name, urls)
	}
	s.balance(t, nil)
	first := s.edges[0]
	_, s.key = first.Key(t, "key", "*")
	for i := range connectors {
		box := first.NewConnector(t, fmt.Sprint("box-", i), map[string]any{"upstream": s.up.URL, "transport": "quic", "server": balancer})
		s.home.Home.Do(func() { box.Launch(t) })
		s.boxes = append(s.boxes, box)
		first.Deploy(t, fmt.Sprint("m-", i), box.ID, "", "m")
		for _, model := range []string{"slow", "own"} {
			first.Deploy(t, fmt.Sprint(model, "-", i), box.ID, "", model)
		}
	}
	s.well(t)
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// balance makes the balancer lead to the edges, and in addition moves the packets for one edge
// to another one.
func (s *system) balance(t *testing.T, moved map[*edge]*edge) {
	t.Helper()
	flows := map[string][]string{}
	for _, e := range s.edges {
		flows[balancer] = append(flows[balancer], e.UDP)
		if to := moved[e]; to != nil {
			flows[e.UDP] = []string{to.UDP}
			flows[balancer][len(flows[balancer])-1] = to.UDP
		}
	}
	must(t, s.home.Redirect(flows))
}

// startEtcd starts three members, and returns their URLs.
func (s *system) startEtcd(t *testing.T) (urls []string) {
	t.Helper()
	var members []rig.EtcdMember
	var machines []*lab.Namespace
	var initial []string
	for i := range 3 {
		machine, address, err := s.network.Machine()
		must(t, err)
		m := rig.EtcdMember{Name: fmt.Sprint("etcd-", i), URL: "http://" + address + ":2379", Peer: "http://" + address + ":2380"}
		machines, members, urls = append(machines, machine), append(members, m), append(urls, m.URL)
		s.stores = append(s.stores, netip.MustParseAddr(address))
		initial = append(initial, m.Name+"="+m.Peer)
	}
	for i, m := range members {
		m.Initial = strings.Join(initial, ",")
		dir := t.TempDir()
		command, err := m.Command(dir)
		must(t, err)
		machines[i].Do(func() { harness.StartProcess(t, dir, m.Name, command()) })
	}
	harness.Poll(t, patience, "etcd", func(ctx context.Context) error {
		_, err := rig.Admin(strings.TrimPrefix(urls[0], "http://")).Call(ctx, http.MethodGet, "/health", nil)
		return err
	})
	return urls
}

func (s *system) startEdge(t *testing.T, name string, urls []string) {
	t.Helper()
	machine, address, err := s.network.Machine()
	must(t, err)
	e := &edge{name: name, machine: machine, address: netip.MustParseAddr(address)}
	machine.Do(func() {
		e.Gateway = harness.Start(t, harness.Options{
			Address: address,
			Storage: "etcd {\n endpoints " + strings.Join(urls, " ") + "\n}",
			App:     "edge {\n name " + name + "\n advertise $UDP\n}",
			Global:  "events {\n on * model_gateway_webhook " + s.hook.url + "\n}",
		})
	})
	s.edges = append(s.edges, e)
}

// legs returns the edges with a tunnel of each connector, by its id, as one edge lists them.
func (e *edge) legs(ctx context.Context) (map[string][]string, error) {
	list, err := e.Connectors(ctx)
	legs := map[string][]string{}
	for _, c := range list {
		legs[c.ID] = c.Edges
	}
	return legs, err
}

// settled waits until these edges agree that each connector has two tunnels, to some of them.
func (s *system) settled(t *testing.T, among ...*edge) map[string][]string {
	t.Helper()
	var last map[string][]string
	harness.Poll(t, patience, "two tunnels of each connector", func(ctx context.Context) error {
		for _, e := range among {
			legs, err := e.legs(ctx)
			if err != nil {
				return err
			}
			for _, box := range s.boxes {
				there := legs[box.ID]
				if len(there) != 2 || slices.ContainsFunc(there, func(name string) bool {
					return !slices.ContainsFunc(among, func(e *edge) bool { return e.name == name })
				}) {
					return fmt.Errorf("%s says that %s has tunnels to %v", e.name, box.Name, there)
				}
			}
			last = legs
		}
		return nil
	})
	return last
}

// well waits until all edges serve all models.
func (s *system) well(t *testing.T) map[string][]string {
	t.Helper()
	for _, e := range s.edges {
		client := e.Client(t, s.key)
		for i := range s.boxes {
			harness.Poll(t, patience, fmt.Sprintf("m-%d at %s", i, e.name), func(ctx context.Context) error {
				return ask(ctx, t, client, fmt.Sprint("m-", i))
			})
		}
	}
	return s.settled(t, s.edges...)
}

// ask sends a request and returns an error unless it is answered.
func ask(ctx context.Context, t *testing.T, client *harness.Client, model string) error {
	a, err := client.Send(client.Request(ctx, t, http.MethodPost, "/v1/chat/completions", harness.Chat(model, "")))
	if err == nil && a.Status != http.StatusOK {
		err = fmt.Errorf("status %d: %.300s", a.Status, a.Body)
	}
	if err == nil {
		err = a.Err
	}
	return err
}

// others returns the edges but one.
func (s *system) others(e *edge) []*edge {
	return slices.DeleteFunc(slices.Clone(s.edges), func(o *edge) bool { return o == e })
}

// manages reports whether a packet is one of a test's own, to an edge's admin endpoint.
func (s *system) manages(p lab.Packet) bool {
	here := netip.MustParseAddr(s.here)
	return p.TCP() && slices.ContainsFunc(s.edges, func(e *edge) bool {
		admin := netip.MustParseAddrPort(string(e.Admin))
		return p.Between(here, admin.Addr()) && (p.Source() == admin || p.Destination() == admin)
	})
}

// cut makes the switch lose what an edge and others send each other; without others, all but
// what tests ask the edge themselves.
func (s *system) cut(e *edge, others ...netip.Addr) {
	s.network.Drop(func(p lab.Packet) bool {
		if len(others) == 0 {
			return p.With(e.address) && !s.manages(p)
		}
		return slices.ContainsFunc(others, func(o netip.Addr) bool { return p.Between(e.address, o) })
	})
}
