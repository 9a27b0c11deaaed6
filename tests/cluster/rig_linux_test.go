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

// places of the model "m": a connector of each name, which sends it as a model of that name.
var places = []string{"one", "two"}

// A machine has an address at the switch.
type machine struct {
	*lab.Namespace
	addr netip.Addr
}

func newMachine(t *testing.T) machine {
	t.Helper()
	space, address, err := network.Machine()
	if err != nil {
		t.Fatal(err)
	}
	return machine{space, netip.MustParseAddr(address)}
}

// free returns an address with a port that is free there.
func (m machine) free(t testing.TB) string {
	return strings.Replace(harness.FreeAddr(t), "127.0.0.1", m.addr.String(), 1)
}

// An edge is a gateway on a machine of its own.
type edge struct {
	*harness.Gateway
	machine
	name string
}

// A member is one of etcd on a machine of its own.
type member struct {
	*server
	machine
}

// A cluster is some edges with one or three etcds, two connectors, and clients whose history is
// checked when the test ends.
type cluster struct {
	*testing.T
	loss    time.Duration // on_store_loss
	members []*member
	edges   []*edge
	boxes   []*harness.Connector // of each place
	history *history
	web     *http.Transport
	steady  key
	stops   []func() // of what uses keys
	notes   []string
}

// newCluster starts a cluster whose clients use a key at all edges until the test ends.
func newCluster(t *testing.T, etcds int) *cluster {
	t.Helper()
	web := &http.Transport{MaxIdleConnsPerHost: 64}
	c := &cluster{T: t, loss: short(2*time.Minute, 10*time.Second), history: newHistory(), web: web}
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

// start starts the member, which must not run.
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

// kill ends the edge as kill -9 does, and returns when that was. Requests that run over it may
// fail at the others.
func (c *cluster) kill(e *edge) (at time.Duration) {
	c.Helper()
	at = c.history.now()
	e.Process.Kill()
	c.mayFail("", at, at+2*grace)
	return at
}

// begin starts the edge, which must have ended, and does not wait.
func (c *cluster) begin(e *edge) {
	c.Helper()
	var err error
	if e.Do(func() { err = e.Process.Start() }); err != nil {
		c.Fatal(err)
	}
}

// start is begin, and returns how long it took until the edge was ready.
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

// until waits until a time.
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

// wipe deletes what the edge has on its disk.
func (c *cluster) wipe(e *edge) {
	c.Helper()
	if err := os.RemoveAll(filepath.Join(e.Dir, "data")); err != nil {
		c.Fatal(err)
	}
}

// clone starts a gateway on another machine with a copy of the edge's disk, and does not wait.
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
	e.Process.Signal(c, syscall.SIGSTOP) // a copy of a file that changes would be invalid
	err = os.CopyFS(filepath.Join(r.Dir, "data"), os.DirFS(filepath.Join(e.Dir, "data")))
	if e.Process.Signal(c, syscall.SIGCONT); err != nil {
		c.Fatal(err)
	}
	gateway := &harness.Gateway{Gateway: g, Process: &harness.Process{Process: g.Process}}
	clone := &edge{Gateway: gateway, machine: m, name: name}
	c.begin(clone)
	return clone
}

// member returns the member that leads, or one that follows.
func (c *cluster) member(leads bool) *member {
	leader := c.servers().leader(c)
	return c.members[slices.IndexFunc(c.members, func(m *member) bool { return (m.server == leader) == leads })]
}

// awaitIsolation waits until the member has noticed that it is cut off. Clients still reach it.
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

// patience is longer than anything that the lease makes wait.
func (c *cluster) patience() time.Duration { return 2*c.loss + patience }

// margin is how much longer than an edge serves without etcd its report is there.
func (c *cluster) margin() time.Duration { return max(c.loss/4, 5*time.Second) }

var cuts = struct {
	sync.Mutex
	rules map[*cluster]func(lab.Packet) bool
}{rules: map[*cluster]func(lab.Packet) bool{}}

// cut loses the packets between an edge or a member and others; without others, all of the
// machine but those of clients and operators. It returns when that was.
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

// heal ends the cut.
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

// addresses returns those of the edges but one, and of the members.
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

// mayFail excuses requests that fail at an edge, at all for "", or writes for "writes".
func (c *cluster) mayFail(edge string, from, to time.Duration) {
	record(c.history, &c.history.may, window{edge, from, to})
}

// mustRefuse demands that the edge accepts nothing.
func (c *cluster) mustRefuse(e *edge, from, to time.Duration) {
	record(c.history, &c.history.must, window{e.name, from, to})
}

func (c *cluster) note(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}

// finish checks the history.
func (c *cluster) finish() {
	c.Helper()
	const most = 8
	for _, stop := range c.stops {
		stop()
	}
	wrong := c.history.check()
	for i, w := range wrong {
		if i == most {
			c.Errorf("and %d more", len(wrong)-most)
			break
		}
		c.Error(w)
	}
	c.Logf("%v; %s", c.history, strings.Join(c.notes, ", "))
}
