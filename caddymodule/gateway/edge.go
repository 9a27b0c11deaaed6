package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/caddymodule/cluster"
	"github.com/postern-dev/postern/caddymodule/peer"
	"github.com/postern-dev/postern/caddymodule/signin"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/store/localcopy"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
)

// Place says where a store is.
type Place struct {
	// Path is the database file. In a cluster it holds what belongs to this edge alone.
	Path string
	// Shared opens the KV that the edges of a cluster share. nil: the gateway is alone.
	Shared func(context.Context, *slog.Logger) (store.KV, error)
	// Name describes the store to the user, and is different for each store.
	Name string
	// Options are the configuration of Shared and Edge, which a reload cannot change.
	Options string
	// Edge is this gateway in a cluster; without a name it gets a random one for good.
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
	services *Services
	hub      atomic.Pointer[tunnel.Hub] // nil: there is none yet
	reports  reports
}

// tunnels returns the tunnels of this gateway for its peers.
func (e *Edge) tunnels() peer.Hub {
	if hub := e.hub.Load(); hub != nil {
		return hub
	}
	return nil
}

// open opens the store, and joins the cluster if there is one. pin returns the pin of the
// gateway's identity, "" while that is unknown.
func (p Place) open(logger *slog.Logger, pin func() string, counters Counters) (*store.Store, *Edge, error) {
	if err := os.MkdirAll(filepath.Dir(p.Path), 0o700); err != nil {
		return nil, nil, fmt.Errorf("creating the storage directory: %w", err)
	}
	file, err := store.OpenBolt(p.Path, store.BoltOptions{Logger: logger})
	if err != nil {
		return nil, nil, err
	}
	var st *store.Store
	var edge *Edge
	if p.Shared == nil {
		st, err = store.New(file, store.Options{Logger: logger})
	} else {
		st, edge, err = p.join(file, logger, pin, counters)
	}
	if err != nil {
		_ = file.Close()
	}
	return st, edge, err
}

// join opens the store of a cluster and joins it.
func (p Place) join(local store.KV, logger *slog.Logger, pin func() string, counters Counters) (*store.Store, *Edge, error) {
	if err := p.identify(context.Background(), local); err != nil {
		return nil, nil, err
	}
	kv, err := localcopy.Open(context.Background(), localcopy.Options{
		Open: func(ctx context.Context) (store.KV, error) { return p.Shared(ctx, logger) }, Path: p.copyPath(), Logger: logger,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("opening the store of the cluster: %w", err)
	}
	edge := new(Edge)
	edge.Cluster = cluster.New(cluster.Options{
		Edge: p.Edge, Waited: counters.Waited, Logger: logger,
		Ask: func(ctx context.Context, other store.Edge) (cluster.Answer, error) { return edge.ask(ctx, other) },
	})
	st, err := store.New(kv, store.Options{Logger: logger, Edge: p.Edge.Name, Local: local, Cluster: edge.Cluster})
	if err != nil {
		return nil, nil, errors.Join(err, kv.Close())
	}
	ctx, cancel := context.WithTimeout(context.Background(), joinTime)
	defer cancel()
	key, err := st.Secret(ctx, store.SecretPeer, randomKey)
	if err == nil {
		edge.Links = peer.New(peer.Options{
			Name: p.Edge.Name, Region: p.Edge.Region, Key: key, Pin: pin, Hub: edge.tunnels, Logger: logger,
		})
		err = edge.Join(ctx, st)
	}
	if err != nil {
		return nil, nil, errors.Join(err, st.Close())
	}
	logger.Info("opened the store of the cluster", "edge", p.Edge.Name)
	return st, edge, nil
}

// copyPath returns the path of the copy of the shared store, which differs for each of these.
func (p Place) copyPath() string {
	sum := sha256.Sum256([]byte(p.Name))
	return strings.TrimSuffix(p.Path, filepath.Ext(p.Path)) + "-copy-" + hex.EncodeToString(sum[:4]) + ".db"
}

// Pong implements tunnel.Peers.
func (e *Edge) Pong() link.Pong {
	a := e.Answer()
	return link.Pong{Instance: a.Instance, StoreLost: !a.HasStore, ServesMillis: a.Serves.Milliseconds(), Confirmed: a.Confirmed}
}

// Pairings implements tunnel.Peers.
func (e *Edge) Pairings() []link.Pairing { return e.services.Pairing.Pairings() }

// OnPairing implements tunnel.Peers.
func (e *Edge) OnPairing(ctx context.Context) func(link.Pairing) {
	return e.services.Pairing.OnPairing(ctx)
}

// publish sends a message to the peers.
func (e *Edge) publish(m link.Message) {
	if hub := e.hub.Load(); hub != nil {
		hub.Publish(m)
	}
}

func (e *Edge) publishPairing(m link.Pairing)  { e.publish(m) }
func (e *Edge) publishSignIn(o signin.Outcome) { e.publish(link.SignIn(o)) }

// OnSignIn implements tunnel.Peers.
func (e *Edge) OnSignIn(m link.SignIn) { e.services.SignIn.OnPeer(signin.Outcome(m)) }

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

// ask asks a peer whether it has contact to the store.
func (e *Edge) ask(ctx context.Context, other store.Edge) (cluster.Answer, error) {
	pong, err := e.Ask(ctx, other)
	return cluster.Answer{
		Instance: pong.Instance, HasStore: !pong.StoreLost, Serves: time.Duration(pong.ServesMillis) * time.Millisecond, Confirmed: pong.Confirmed,
	}, err
}

// identity is what an edge's own file says about it.
type identity struct {
	Instance string `json:"instance"` // see store.Edge
	Name     string `json:"name"`     // if the configuration has none
}

const identityKey = "edge"

// identify completes Edge with the identity in local, which it creates at the first time.
func (p *Place) identify(ctx context.Context, local store.KV) error {
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
		return store.Errorf(store.ErrSchema, "the file %s is not that of a gateway of a cluster: move it away, and this gateway gets a new identity", p.Path)
	}
	p.Edge.Instance = id.Instance
	p.Edge.Name = cmp.Or(p.Edge.Name, id.Name)
	return nil
}

// leave removes this edge from its cluster when it serves no more.
func leave(edge *Edge) error {
	if edge == nil {
		return nil
	}
	defer edge.Close()
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	if err := edge.Leave(ctx); err != nil {
		return fmt.Errorf("leaving the cluster: %w", err)
	}
	return nil
}
