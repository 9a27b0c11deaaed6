package gateway

import (
	"log/slog"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

// Join opens the store that the gateways of a cluster share, and joins the cluster. file contains the records
// of this gateway alone.
type Join func(file store.KV, o JoinOptions) (*store.Store, Cluster, error)

// JoinOptions are the parameters of a Join.
type JoinOptions struct {
	// Pin returns the pin of the gateway's identity, "" while that is unknown.
	Pin func() string
	// Waited is called after each write that has waited for all gateways.
	Waited func(took time.Duration, confirmed bool)
	Logger *slog.Logger
}

// Cluster is this gateway's part in a cluster. Package cluster/edge implements it.
type Cluster interface {
	manage.Cluster
	// Start is called with the services before they are used.
	Start(s *Services)
	// Listening is called when the hub accepts tunnels.
	Listening(hub *tunnel.Hub)
	// Members returns the gateways for connectors.
	Members() tunnel.Members
	// Serving returns the number of gateways that serve and share limits. It is fast.
	Serving() int
	// Draining reports whether clients and connectors should use other gateways.
	Draining() bool
	// Leader reports whether this gateway does the work that one gateway does for all.
	Leader() bool
	// Leave leaves the cluster. No request may be running.
	Leave() error
}
