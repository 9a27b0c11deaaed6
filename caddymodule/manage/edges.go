package manage

import (
	"context"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/store"
)

// Cluster is this gateway's part in a cluster: the gateways that share a store, its edges.
type Cluster interface {
	// Name returns the name of this edge.
	Name() string
	// LeaderName returns the name of the edge with the duties that one fulfills for all, "" if
	// none is known.
	LeaderName() string
	// Stale returns how long ago this edge had contact to the store.
	Stale() time.Duration
	// Contact returns what this edge knows of the contact of an edge to the store.
	Contact(edge string) store.Contact
	// Remove removes an edge. While it may accept requests, this fails unless stopped says that
	// its program has stopped.
	Remove(ctx context.Context, edge string, stopped bool) error
	// Reports returns what other edges know alone about the activity of an account, by their
	// names, and the names of those that do not answer soon.
	Reports(ctx context.Context, account string) (reports map[string]activity.Report, silent []string)
}

// The states of edges.
const (
	EdgeServing  = "serving"
	EdgeDraining = "draining" // clients and connectors shall use other edges
	EdgeLost     = "lost"     // without contact to the store
)

// EdgeStates lists the states of edges.
var EdgeStates = []string{EdgeServing, EdgeDraining, EdgeLost}

// Edge is a gateway of the cluster.
type Edge struct {
	Name      string `json:"name"`
	Region    string `json:"region,omitempty"`
	Version   string `json:"version,omitempty"`   // of Postern
	Advertise string `json:"advertise,omitempty"` // host:port that connectors dial, absent behind a balancer
	Peer      string `json:"peer,omitempty"`      // host:port that other edges dial
	// StartedAt is when it started.
	StartedAt time.Time `json:"started_at"`
	// State is "serving", "draining" or "lost".
	State string `json:"state"`
	// LostSince is since when it has no contact to the store, absent if it has.
	LostSince *time.Time `json:"lost_since,omitempty"`
	Leader    bool       `json:"leader"` // has the duties that one edge fulfills for all
	Self      bool       `json:"self"`   // is the edge that answers
}

// EdgeStatus is this gateway's part in a cluster.
type EdgeStatus struct {
	Name string `json:"name"`
	// State is "serving", "draining" or "lost".
	State string `json:"state"`
	// Leader is the edge with the duties that one fulfills for all, absent if none is known.
	Leader string `json:"leader,omitempty"`
	// ContactAt is when this edge last had contact to the store.
	ContactAt time.Time `json:"contact_at"`
	Edges     int       `json:"edges"` // number of edges, including this one
	Lost      []string  `json:"lost"`  // names of the edges without contact to the store
}

// MayEdges returns an error if the caller may not see and change the edges, or there are none.
// They belong to no account: only operators and users of the default account may.
func (s *Service) MayEdges(ctx context.Context) error {
	account, err := s.account(ctx)
	switch {
	case err != nil:
		return err
	case !CallerFrom(ctx).Operator && account != store.DefaultAccount:
		return faultf(ErrForbidden, "only operators and users of the account %q may see and change the edges of the cluster", store.DefaultAccount)
	case s.cluster == nil:
		return faultf(ErrNotReady, "this gateway is not in a cluster: it has a store of its own. Several gateways share one with `storage etcd { … }` in the global options")
	}
	return nil
}

// Edges lists the edges of the cluster, by name.
func (s *Service) Edges(ctx context.Context) ([]Edge, error) {
	if err := s.MayEdges(ctx); err != nil {
		return nil, err
	}
	return s.AllEdges(), nil
}

// AllEdges is Edges for metrics, without a caller. It is empty if the gateway is alone.
func (s *Service) AllEdges() []Edge {
	edges := []Edge{}
	if s.cluster == nil {
		return edges
	}
	for _, e := range s.store.Edges() {
		edges = append(edges, s.edgeOf(e.Edge))
	}
	return edges
}

func (s *Service) edgeOf(e store.Edge) Edge {
	view := Edge{
		Name: e.Name, Region: e.Region, Version: e.Version, Advertise: e.Advertise, Peer: e.Peer, StartedAt: e.StartedAt,
		State: EdgeServing, Leader: s.cluster.LeaderName() == e.Name, Self: s.cluster.Name() == e.Name,
	}
	if e.Draining {
		view.State = EdgeDraining
	}
	if since := s.cluster.Contact(e.Name).Last; !since.IsZero() {
		view.State, view.LostSince = EdgeLost, new(since.UTC().Truncate(time.Second))
	}
	return view
}

// edgeStatus returns this gateway's part in its cluster, nil if it has none or the caller may
// not see it.
func (s *Service) edgeStatus(ctx context.Context) *EdgeStatus {
	if s.MayEdges(ctx) != nil {
		return nil
	}
	status := &EdgeStatus{
		Name: s.cluster.Name(), Leader: s.cluster.LeaderName(),
		ContactAt: s.now().Add(-s.cluster.Stale()).UTC().Truncate(time.Second), Lost: []string{},
	}
	for _, e := range s.AllEdges() {
		status.Edges++
		if e.Self {
			status.State = e.State
		}
		if e.State == EdgeLost {
			status.Lost = append(status.Lost, e.Name)
		}
	}
	return status
}

// DrainEdge makes an edge not ready, so that load balancers use the others. It refuses nothing.
func (s *Service) DrainEdge(ctx context.Context, name string) (Edge, error) {
	return s.setDraining(ctx, "edge.drain", name, true)
}

// UndrainEdge makes a draining edge ready again.
func (s *Service) UndrainEdge(ctx context.Context, name string) (Edge, error) {
	return s.setDraining(ctx, "edge.undrain", name, false)
}

func (s *Service) setDraining(ctx context.Context, operation, name string, draining bool) (Edge, error) {
	if err := s.MayEdges(ctx); err != nil {
		return Edge{}, err
	}
	e, err := s.store.ChangeEdge(ctx, name, func(e *store.Edge) { e.Draining = draining })
	if err != nil {
		return Edge{}, err
	}
	s.audit(ctx, operation, "", name, name)
	return s.edgeOf(e), nil
}

// RemoveEdge removes an edge that is lost and refuses all requests.
func (s *Service) RemoveEdge(ctx context.Context, name string) (Edge, error) {
	if err := s.MayEdges(ctx); err != nil {
		return Edge{}, err
	}
	e, _ := s.store.FindEdge(name)
	if err := s.cluster.Remove(ctx, name, false); err != nil {
		return Edge{}, err
	}
	s.audit(ctx, "edge.remove", "", name, name)
	return s.edgeOf(e.Edge), nil
}
