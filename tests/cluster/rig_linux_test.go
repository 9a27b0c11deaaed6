package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/rig"
	"github.com/postern-dev/postern/tests/rig/lab"
	"github.com/postern-dev/postern/tests/upstream"
)

// places are the connectors that can serve the model "m". Each calls it by its own name at the model server.
var places = []string{"one", "two"}

// A machine is a network namespace with an address at the switch.
type machine struct {
	*lab.Namespace
	addr netip.Addr
}

func newMachine(t *testing.T) machine {
	t.Helper()
	space, address, err := network.Machine()
	must(t, err)
	return machine{space, netip.MustParseAddr(address)}
}

// free returns an address of the machine with a free port.
func (m machine) free(t testing.TB) string {
	return strings.Replace(harness.FreeAddr(t), "127.0.0.1", m.addr.String(), 1)
}

// An edge is a gateway on its own machine.
type edge struct {
	*harness.Gateway
	machine
	name string
}

// A member is a member of etcd on its own machine.
type member struct {
	*server
	machine
}

// A cluster has edges, one or three members of etcd, two connectors, and clients. The history of the clients
// is checked at the end of the test.
type cluster struct {
	*testing.T
	loss    time.Duration // on_store_loss
	lines   string        // within the sites of the edges
	members []*member
	edges   []*edge
	boxes   []*harness.Connector // one per place
	history *history
	web     *http.Transport
	steady  key
	stops   []func() // stop the clients
	notes   []string
}

// newCluster starts a cluster whose clients use a key at all edges until the test ends.
func newCluster(t *testing.T, etcds int, lines string) *cluster {
	t.Helper()
	web := &http.Transport{MaxIdleConnsPerHost: 64}
	c := &cluster{T: t, loss: short(2*time.Minute, 10*time.Second), lines: lines, history: newHistory(), web: web}
	t.Cleanup(c.web.CloseIdleConnections)
	model := upstream.Start(t)
	model.Handle("", c.history.serve)
	c.startEtcd(etcds)
	for _, name := range []string{"a", "b", "c"} {
		c.startEdge(name)
	}
	first := c.edges[0]
	for _, place := range places {
		options := map[string]any{"upstream": model.URL, "transport": "quic", "server": first.UDP}
		box := first.NewConnector(t, place, options)
		box.Start(t)
		c.boxes = append(c.boxes, box)
	}
	if w := c.move(first, places[0]); !w.confirmed() {
		t.Fatalf("the model has no place: %+v", w)
	}
	c.steady = c.create(first)
	for _, e := range c.edges {
		c.serves(e)
	}
	c.use(c.steady, true)
	return c
}

func (c *cluster) startEtcd(n int) {
	c.Helper()
	var peers, initial []string
	for i := range n {
		m := newMachine(c.T)
		peers = append(peers, "http://"+m.free(c))
		initial = append(initial, fmt.Sprintf("m%d=%s", i, peers[i]))
		c.members = append(c.members, &member{machine: m})
	}
	for i, m := range c.members {
		m.server = newServer(c, fmt.Sprintf("m%d", i), "http://"+m.free(c), peers[i], strings.Join(initial, ","), nil)
		m.start(c)
	}
	c.servers().wait(c)
}

// start starts the member, which must not be running.
func (m *member) start(t testing.TB) { m.Do(func() { m.server.start(t) }) }

func (c *cluster) servers() (all servers) {
	for _, m := range c.members {
		all = append(all, m.server)
	}
	return all
}

func (c *cluster) options(name string, on machine) harness.Options {
	return harness.Options{
		Address: on.addr.String(),
		Lines:   c.lines,
		Storage: "etcd {\n endpoints " + strings.Join(c.servers().urls(), " ") + "\n}",
		App:     fmt.Sprintf("edge {\n name %s\n advertise $UDP\n on_store_loss %v\n}", name, c.loss),
	}
}

func (c *cluster) startEdge(name string) {
	c.Helper()
	e := &edge{machine: newMachine(c.T), name: name}
	e.Do(func() { e.Gateway = harness.Start(c, c.options(name, e.machine)) })
	c.edges = append(c.edges, e)
}

// kill ends the edge with SIGKILL and returns the time. At other edges, requests that run over it may fail.
func (c *cluster) kill(e *edge) (at time.Duration) {
	c.Helper()
	at = c.history.now()
	e.Process.Kill()
	c.mayFail("", at, at+2*grace)
	return at
}

// begin starts the edge, which must not be running, without waiting for it.
func (c *cluster) begin(e *edge) {
	c.Helper()
	var err error
	if e.Do(func() { err = e.Process.Start() }); err != nil {
		c.Fatal(err)
	}
}

// start starts the edge and waits until it is ready. It returns how long that took.
func (c *cluster) start(e *edge) (took time.Duration) {
	c.Helper()
	began := c.history.now()
	c.begin(e)
	c.ready(e)
	return c.history.now() - began
}

// ready waits until the edge is ready.
func (c *cluster) ready(e *edge) {
	c.Helper()
	harness.Poll(c, c.patience(), e.name+" being ready", func(ctx context.Context) error {
		response, err := c.get(ctx, e.URL+readyPath)
		if err == nil && response != http.StatusOK {
			err = fmt.Errorf("status %d", response)
		}
		if err != nil && !e.Process.Running() {
			c.Fatalf("%s has ended:\n%s", e.name, e.Process.Tail())
		}
		return err
	})
}

// until sleeps until this time.
func (c *cluster) until(at time.Duration) { time.Sleep(at - c.history.now()) }

func (c *cluster) get(ctx context.Context, url string) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// wipe deletes the data of the edge.
func (c *cluster) wipe(e *edge) {
	c.Helper()
	if err := os.RemoveAll(filepath.Join(e.Dir, "data")); err != nil {
		c.Fatal(err)
	}
}

// clone starts a gateway on another machine with a copy of the edge's data, without waiting for it.
func (c *cluster) clone(e *edge, name string) *edge {
	c.Helper()
	r, err := rig.New(rig.Options{Dir: c.TempDir()})
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() {
		if err := r.Close(); err != nil {
			c.Error(err)
		}
	})
	m := newMachine(c.T)
	o := c.options(name, m)
	g, err := r.Gateway(rig.GatewayOptions{Host: o.Address, Storage: o.Storage, App: o.App})
	if err != nil {
		c.Fatal(err)
	}
	e.Process.Signal(c, syscall.SIGSTOP) // a file must not change while it is copied
	err = os.CopyFS(filepath.Join(r.Dir, "data"), os.DirFS(filepath.Join(e.Dir, "data")))
	if e.Process.Signal(c, syscall.SIGCONT); err != nil {
		c.Fatal(err)
	}
	gateway := &harness.Gateway{Gateway: g, Process: &harness.Process{Process: g.Process}}
	clone := &edge{Gateway: gateway, machine: m, name: name}
	c.begin(clone)
	return clone
}

// member returns the leader, or one of the followers.
func (c *cluster) member(leads bool) *member {
	leader := c.servers().leader(c)
	return c.members[slices.IndexFunc(c.members, func(m *member) bool { return (m.server == leader) == leads })]
}

// awaitIsolation waits until the member has noticed that it is cut off. It is still reachable for clients.
func (m *member) awaitIsolation(t testing.TB) {
	t.Helper()
	client := servers{m.server}.client(t)
	harness.Poll(t, patience, "a member without a leader", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, oneTry)
		defer cancel()
		if _, err := client.Get(clientv3.WithRequireLeader(ctx), "x"); !errors.Is(err, rpctypes.ErrNoLeader) {
			return fmt.Errorf("its answer: %w", err)
		}
		return nil
	})
}

// patience is longer than any wait for a lease.
func (c *cluster) patience() time.Duration { return 2*c.loss + patience }

// margin is the time for which the report of an edge without etcd remains after the edge has stopped serving.
func (c *cluster) margin() time.Duration { return max(c.loss/4, 5*time.Second) }

var cuts = struct {
	sync.Mutex
	rules map[*cluster]func(lab.Packet) bool
}{rules: map[*cluster]func(lab.Packet) bool{}}

// cut drops the packets between a machine and others, or without others, all packets of the machine except
// those of clients and operators. It returns the time.
func (c *cluster) cut(m machine, others ...netip.Addr) time.Duration {
	c.Helper()
	c.lose(func(p lab.Packet) bool {
		if len(others) == 0 {
			return p.With(m.addr) && !(p.TCP() && p.Between(m.addr, here))
		}
		return slices.ContainsFunc(others, func(o netip.Addr) bool { return p.Between(m.addr, o) })
	})
	return c.history.now()
}

// heal ends the cut and returns the time.
func (c *cluster) heal() time.Duration {
	c.lose(nil)
	return c.history.now()
}

func (c *cluster) lose(rule func(lab.Packet) bool) {
	cuts.Lock()
	defer cuts.Unlock()
	if cuts.rules[c] = rule; rule == nil {
		delete(cuts.rules, c)
	}
	rules := slices.Collect(maps.Values(cuts.rules))
	network.Drop(func(p lab.Packet) bool {
		return slices.ContainsFunc(rules, func(rule func(lab.Packet) bool) bool { return rule(p) })
	})
}

// addresses returns the addresses of all edges but one, and of the members.
func (c *cluster) addresses(but *edge) (edges, members []netip.Addr) {
	for _, e := range c.edges {
		if e != but {
			edges = append(edges, e.addr)
		}
	}
	for _, m := range c.members {
		members = append(members, m.addr)
	}
	return edges, members
}

// mayFail allows requests to fail at an edge, at all edges for "", or writes to fail for "writes".
func (c *cluster) mayFail(edge string, from, to time.Duration) {
	record(c.history, &c.history.mayFail, window{edge, from, to})
}

// mustRefuse requires that the edge accepts no requests.
func (c *cluster) mustRefuse(e *edge, from, to time.Duration) {
	record(c.history, &c.history.mustRefuse, window{e.name, from, to})
}

func (c *cluster) note(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}

// finish checks the history.
func (c *cluster) finish() {
	c.Helper()
	const limit = 8
	for _, stop := range c.stops {
		stop()
	}
	wrong := c.history.check()
	for i, w := range wrong {
		if i == limit {
			c.Errorf("and %d more", len(wrong)-limit)
			break
		}
		c.Error(w)
	}
	c.Logf("%v; %s", c.history, strings.Join(c.notes, ", "))
}
