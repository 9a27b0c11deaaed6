// Package edge is a gateway's part in a cluster: it opens the store that the edges share, joins them, and
// answers for this gateway what the others ask.
package edge

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/cluster"
	"github.com/postern-dev/postern/caddymodule/cluster/owner"
	"github.com/postern-dev/postern/caddymodule/cluster/peer"
	"github.com/postern-dev/postern/caddymodule/gateway"
	"github.com/postern-dev/postern/caddymodule/signin"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
)

// Options say which cluster a gateway joins.
type Options struct {
	// Path is the file of what belongs to this edge alone.
	Path string
	// Shared opens the KV that the edges share.
	Shared func(context.Context, *slog.Logger) (store.KV, error)
	// Edge is this gateway; without a name it gets a random one for good.
	Edge store.Edge
}

const (
	joinTime  = 20 * time.Second
	leaveTime = 5 * time.Second
)

// Edge is this gateway's part in a cluster: to the store, and to its peers.
type Edge struct {
	*cluster.Cluster
	*peer.Links
	services *gateway.Services
	owners   *owner.Owners
	reports  reports
}

// Start implements gateway.Cluster.
func (e *Edge) Start(s *gateway.Services) {
	e.services = s
	s.Store.Subscribe(func(c store.Change) {
		if hub := e.Hub(); hub != nil && c.Kind == store.KindEdge {
			hub.MembersChanged()
			e.Follow()
		}
	})
	e.owners = owner.New(owner.Options{
		Edge: e.Name(), Edges: s.Store.Edges, Suspect: e.Suspect, Queues: s.Queues, Logger: e.Cluster.Logger,
		Open: func(edge string) (link.Stream, error) { return e.Open(edge) },
	})
	s.Queues.Share(e.owners.Enter)
}

// Listening implements gateway.Cluster.
func (e *Edge) Listening(hub *tunnel.Hub) {
	hub.MembersChanged()
	e.Use(hub)
}

// Join opens the store of a cluster and joins that. local is the open file of this edge.
func (p Options) Join(local store.KV, o gateway.JoinOptions) (*store.Store, gateway.Cluster, error) {
	logger := o.Logger
	if err := p.identify(context.Background(), local); err != nil {
		return nil, nil, err
	}
	kv, err := p.Shared(context.Background(), logger)
	if err != nil {
		return nil, nil, fmt.Errorf("opening the store of the cluster: %w", err)
	}
	edge := new(Edge)
	edge.Cluster = cluster.New(cluster.Options{Edge: p.Edge, Waited: o.Waited, Logger: logger})
	st, err := store.New(kv, store.Options{Logger: logger, Edge: p.Edge.Name, Local: local, Cluster: edge.Cluster})
	if err != nil {
		return nil, nil, errors.Join(err, kv.Close())
	}
	ctx, cancel := context.WithTimeout(context.Background(), joinTime)
	defer cancel()
	key, err := st.Secret(ctx, store.SecretPeer, gateway.RandomKey)
	if err == nil {
		edge.Links = peer.New(peer.Options{
			Name: p.Edge.Name, Region: p.Edge.Region, Key: key, Pin: o.Pin, Gateway: edge, Logger: logger,
			Peers: func() map[string]string { return addresses(st.Edges(), edge.Cluster.Edge) },
		})
		err = edge.Join(ctx, st)
	}
	if err != nil {
		return nil, nil, errors.Join(err, st.Close())
	}
	logger.Info("opened the store of the cluster", "edge", p.Edge.Name)
	return st, edge, nil
}

// addresses returns where the other edges are dialed, by their names. Edges without a report are
// among them: they may serve, and have tunnels. There are none before self has its place: until then
// they know another process by its name.
func addresses(edges []store.EdgeState, self store.Edge) map[string]string {
	peers, joined := make(map[string]string), false
	for _, e := range edges {
		joined = joined || e.Is(self)
		if e.Name != self.Name && e.Peer != "" {
			peers[e.Name] = e.Peer
		}
	}
	if !joined {
		return nil
	}
	return peers
}

// Pairings implements peer.Gateway.
func (e *Edge) Pairings() []link.Pairing { return e.services.Pairing.Pairings() }

// OnPairing implements peer.Gateway.
func (e *Edge) OnPairing(ctx context.Context) func(link.Pairing) {
	return e.services.Pairing.OnPairing(ctx)
}

// OnSignIn implements peer.Gateway.
func (e *Edge) OnSignIn(m link.SignIn) { e.services.SignIn.OnPeer(signin.Outcome(m)) }

// Members implements gateway.Cluster.
func (e *Edge) Members() tunnel.Members { return e.members(e.services.Store.Edges()) }

// members returns the edges for the connectors of this one: those that have the store, an
// address, and do not drain.
func (e *Edge) members(edges []store.EdgeState) tunnel.Members {
	m := tunnel.Members{Name: e.Name()}
	for _, other := range edges {
		if other.Name == m.Name {
			m.Region, m.Draining = other.Region, other.Draining
		}
		if other.Report != nil && !other.Draining && other.Advertise != "" {
			m.Edges = append(m.Edges, link.Edge{Name: other.Name, Server: other.Advertise, Region: other.Region})
		}
	}
	return m
}

// identity is what an edge's own file says about it.
type identity struct {
	Instance string `json:"instance"` // see store.Edge
	Name     string `json:"name"`     // if the configuration has none
}

const identityKey = "edge"

// identify completes Edge with the identity in local, which it creates at the first time.
func (p *Options) identify(ctx context.Context, local store.KV) error {
	item, err := local.Get(ctx, identityKey)
	if err != nil {
		return err
	}
	var id identity
	if !item.Exists() {
		id = identity{Instance: rand.Text(), Name: "edge-" + strings.ToLower(rand.Text()[:6])}
		value, err := json.Marshal(id)
		if err != nil {
			return err
		}
		if _, err := local.Txn(ctx, store.Txn{Then: []store.Op{store.Put(identityKey, value)}}); err != nil {
			return err
		}
	} else if err := json.Unmarshal(item.Value, &id); err != nil || id.Instance == "" || id.Name == "" {
		return store.Errorf(store.ErrSchema, "the file %s is not that of a gateway of a cluster: "+
			"move it away, and this gateway gets a new identity", p.Path)
	}
	p.Edge.Instance, p.Edge.Boot = id.Instance, boot(p.Path)
	p.Edge.Name = cmp.Or(p.Edge.Name, id.Name)
	return nil
}

// Leave implements gateway.Cluster.
func (e *Edge) Leave() error {
	defer e.Close()
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	if err := e.Cluster.Leave(ctx); err != nil {
		return fmt.Errorf("leaving the cluster: %w", err)
	}
	return nil
}

// Interface guard.
var _ gateway.Cluster = (*Edge)(nil)
