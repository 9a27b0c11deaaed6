package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/freeport"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// testEdges are the gateways of a cluster on loopback, with their store.
type testEdges struct {
	t       *testing.T
	secrets tunnel.Secrets
	token   link.Token

	mu      sync.Mutex
	edges   map[string]*testEdge
	alone   bool // they send no edges
	removed bool // the connector was removed
}

type testEdge struct {
	*tunnel.Hub
	name     string
	address  string
	socket   *net.UDPConn
	alive    bool
	draining bool
	starts   int64
}

func startEdges(t *testing.T, names ...string) *testEdges {
	t.Helper()
	identity, err := link.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	c := &testEdges{
		t: t, secrets: tunnel.Secrets{
			Identity: identity, Reset: make([]byte, 32),
			Token: make([]byte, 32),
		},
		edges: map[string]*testEdge{},
	}
	_, _ = rand.Read(c.secrets.Reset)
	_, _ = rand.Read(c.secrets.Token)
	for _, name := range names {
		c.edges[name] = &testEdge{name: name, address: freeAddr(t)}
		c.start(name)
	}
	first := c.edges[names[0]]
	c.token = link.Token{Server: first.address, Pin: first.Pin(), Connector: testToken.Connector, Secret: testToken.Secret}
	t.Cleanup(func() {
		for name := range c.edges {
			c.stop(name)
		}
	})
	return c
}

// freeAddr returns an address at which a gateway can listen again after it was killed. The
// kernel gives it to no other socket meanwhile.
func freeAddr(t *testing.T) string {
	t.Helper()
	addr, err := freeport.Addr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// start starts an edge, at the same address as before.
func (c *testEdges) start(name string) {
	c.t.Helper()
	e := c.edges[name]
	address, err := net.ResolveUDPAddr("udp", e.address)
	if err != nil {
		c.t.Fatal(err)
	}
	socket, err := net.ListenUDP("udp", address)
	if err != nil {
		c.t.Fatal(err)
	}
	hub := tunnel.NewHub(tunnel.Options{
		Authenticate: c.authenticate, Members: func() tunnel.Members { return c.members(name) },
		Version: "test",
	})
	c.mu.Lock()
	if c.alone {
		hub.SetOptions(tunnel.Options{Authenticate: c.authenticate})
	}
	e.Hub, e.socket, e.address, e.alive, e.starts = hub, socket, socket.LocalAddr().String(), true, e.starts+1
	c.mu.Unlock()
	if err := hub.Listen(socket, c.secrets); err != nil {
		c.t.Fatal(err)
	}
	c.changed()
}

// kill ends an edge like kill -9. The other edges notice it only after forget.
func (c *testEdges) kill(name string) { _ = c.edges[name].socket.Close() }

// forget removes a killed edge from the members.
func (c *testEdges) forget(name string) { c.set(func() { c.edges[name].alive = false }) }

// stop shuts an edge down at once.
func (c *testEdges) stop(name string) {
	c.forget(name)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = c.edges[name].Close(ended)
}

// set changes the cluster, and notifies all edges.
func (c *testEdges) set(change func()) {
	c.mu.Lock()
	change()
	c.mu.Unlock()
	c.changed()
}

func (c *testEdges) changed() {
	for _, hub := range c.hubs() {
		hub.MembersChanged()
	}
}

func (c *testEdges) hubs() (hubs []*tunnel.Hub) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.edges {
		if e.Hub != nil && e.alive {
			hubs = append(hubs, e.Hub)
		}
	}
	return hubs
}

func (c *testEdges) members(name string) tunnel.Members {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := tunnel.Members{Name: name}
	for _, other := range slices.Sorted(maps.Keys(c.edges)) {
		if e := c.edges[other]; e.alive && !e.draining {
			m.Edges = append(m.Edges, link.Edge{Name: other, Server: e.address, StartedMillis: e.starts})
		}
	}
	return m
}

func (c *testEdges) authenticate(_ context.Context, id, secret string) (tunnel.Connector, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if secret != testToken.Secret || c.removed {
		return tunnel.Connector{}, errors.New("unknown")
	}
	return tunnel.Connector{ID: id, Name: id, Account: "default"}, nil
}

// at returns the names of the edges of the connector's tunnels.
func (c *testEdges) at() (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(c.edges)) {
		if e := c.edges[name]; e.Hub != nil && e.alive && len(e.Sessions()) > 0 {
			names = append(names, name)
		}
	}
	return names
}

// awaitLegs waits until the connector has exactly n tunnels to edges, and its status shows
// them.
func (c *testEdges) awaitLegs(a *runningAgent, n int) []string {
	c.t.Helper()
	var names []string
	wait.Until(c.t, fmt.Sprintf("%d tunnels", n), func() bool {
		names = nil
		for _, l := range a.Status().Legs {
			if l.Tunnel != nil {
				names = append(names, l.Edge)
			}
		}
		slices.Sort(names)
		return len(names) == n && slices.Equal(names, c.at())
	})
	return names
}

// answers fails the test unless a request through an edge gets this answer.
func (c *testEdges) answers(name, want string) {
	c.t.Helper()
	g := &realGateway{Hub: c.edges[name].Hub, token: c.token}
	if got, err := g.answer(c.t.Context()); err != nil || got != want {
		c.t.Errorf("through %s: %q, %v; want %q", name, got, err, want)
	}
}

// startLegs runs an agent for the cluster. The agent waits long before it assumes silence, as
// the machine may be slow. change may set other limits.
func (c *testEdges) startLegs(base string, change func(*instance)) *runningAgent {
	g := &fakeGateway{t: c.t, token: c.token, transport: config.TransportQUIC}
	return startAgent(c.t, g, base, change)
}

// hasty lets an agent notice a lost gateway soon.
func hasty(a *instance) {
	a.lostAfter, a.dialLimit = 3*time.Second, 2*time.Second
}
