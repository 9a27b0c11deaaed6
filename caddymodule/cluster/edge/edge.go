// Package edge is a gateway's part in a cluster: it opens the shared store and joins the cluster.
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
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/caddymodule/cluster"
	"github.com/postern-dev/postern/caddymodule/gateway"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
)

// Options describe this gateway and the cluster that it joins.
type Options struct {
	// Path is the file with the data of this edge alone.
	Path string
	// Shared opens the KV that the edges share.
	Shared func(context.Context, *slog.Logger) (store.KV, error)
	// Edge is this gateway. If it has no name, Join gives it a random one, which it keeps.
	Edge store.Edge
}

const (
	joinTimeout  = 20 * time.Second
	leaveTimeout = 5 * time.Second
)

// Edge is this gateway's part in a cluster: its membership.
type Edge struct {
	*cluster.Cluster
	services *gateway.Services
	hub      atomic.Pointer[tunnel.Hub] // nil: it does not accept tunnels yet
	serving  atomic.Int64               // edges that report and do not drain
}

// Start implements gateway.Cluster.
func (e *Edge) Start(s *gateway.Services) {
	e.services = s
	s.Store.Subscribe(func(c store.Change) {
		if c.Kind != store.KindEdge {
			return
		}
		e.count()
		if hub := e.hub.Load(); hub != nil {
			hub.MembersChanged()
		}
	})
	e.count()
}

// count counts the edges that report and do not drain. They share limits, and places at model servers.
func (e *Edge) count() {
	s := shareOf(e.services.Store.Edges(), e.Name())
	e.serving.Store(int64(s.edges))
	e.services.Turns.SetShare(s.divide)
}

// Serving implements gateway.Cluster.
func (e *Edge) Serving() int { return int(e.serving.Load()) }

// share is the part of an edge in what several edges divide.
type share struct {
	edges  int
	before int // of these, those before this one
}

// shareOf returns the share of the edge with this name.
func shareOf(edges []store.EdgeState, name string) (s share) {
	for _, e := range edges {
		if e.Report == nil || e.Draining {
			continue
		}
		s.edges++
		if e.Name < name {
			s.before++
		}
	}
	return s
}

// divide returns the share of places: each edge gets one at least, and the first edges get the remainder.
func (s share) divide(places int) int {
	n := max(s.edges, 1)
	return max(1, (places+n-1-s.before)/n)
}

// Listening implements gateway.Cluster.
func (e *Edge) Listening(hub *tunnel.Hub) {
	e.hub.Store(hub)
	hub.MembersChanged()
}

// Join opens the store of a cluster and joins the cluster. local is the open file of this edge.
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
	st, err := store.New(kv, store.Options{Logger: logger, Edge: p.Edge.Name, Own: local, Cluster: edge.Cluster})
	if err != nil {
		return nil, nil, errors.Join(err, kv.Close())
	}
	ctx, cancel := context.WithTimeout(context.Background(), joinTimeout)
	defer cancel()
	if err := edge.Join(ctx, st); err != nil {
		return nil, nil, errors.Join(err, st.Close())
	}
	logger.Info("opened the store of the cluster", "edge", p.Edge.Name)
	if p.Edge.Advertise == "" {
		logger.Warn("the edge has no `advertise`: connectors reach it only if `public` leads them here", "edge", p.Edge.Name)
	}
	if without := edge.members(st.Edges()).Excess(); len(without) > 0 {
		logger.Warn("connectors have tunnels to eight edges at most, the first by name", "without_tunnels", without)
	}
	return st, edge, nil
}

// Members implements gateway.Cluster.
func (e *Edge) Members() tunnel.Members { return e.members(e.services.Store.Edges()) }

// members returns the edges for the connectors of this edge: those that report, advertise an address,
// and do not drain.
func (e *Edge) members(edges []store.EdgeState) tunnel.Members {
	m := tunnel.Members{Name: e.Name()}
	for _, other := range edges {
		if other.Report != nil && !other.Draining && other.Advertise != "" {
			m.Edges = append(m.Edges, link.Edge{
				Name: other.Name, Server: other.Advertise, StartedMillis: other.StartedAt.UnixMilli(),
			})
		}
	}
	return m
}

// identity is the identity of an edge, in its own file.
type identity struct {
	Instance string `json:"instance"` // see store.Edge
	Name     string `json:"name"`     // if the configuration has none
}

const identityKey = "edge"

// identify completes Edge with the identity in local. The first call creates the identity.
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
	p.Edge.Instance, p.Edge.Boot = id.Instance, bootFileID(p.Path)
	p.Edge.Name = cmp.Or(p.Edge.Name, id.Name)
	return nil
}

// Leave implements gateway.Cluster.
func (e *Edge) Leave() error {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	if err := e.Cluster.Leave(ctx); err != nil {
		return fmt.Errorf("leaving the cluster: %w", err)
	}
	return nil
}

// Interface guard.
var _ gateway.Cluster = (*Edge)(nil)
