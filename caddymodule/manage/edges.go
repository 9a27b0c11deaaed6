package manage

import (
	"context"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// Cluster is the cluster of this gateway: the gateways that share a store, called edges.
type Cluster interface {
	// Name returns the name of this edge.
	Name() string
	// LeaderName returns the name of the edge that performs the duties of the whole cluster, "" if it is not known.
	LeaderName() string
	// Contact returns what this edge knows about an edge's contact with the store.
	Contact(edge string) store.Contact
	// Remove removes an edge. It fails while the edge may accept requests, unless its program has stopped.
	Remove(ctx context.Context, edge string, stopped bool) error
}

// The states of edges.
const (
	EdgeServing      = "serving"
	EdgeDraining     = "draining"      // clients and connectors should use other edges
	EdgeWithoutStore = "without_store" // without contact with the store; may accept requests for a while
	EdgeLost         = "lost"          // without contact for so long that it accepts no requests
	EdgeUnknown      = "unknown"       // the edge that answers has no contact itself
)

// EdgeStates lists the states of edges.
var EdgeStates = []string{EdgeServing, EdgeDraining, EdgeWithoutStore, EdgeLost, EdgeUnknown}

// Edge is a gateway of the cluster.
type Edge struct {
	Name      string `json:"name" column:"NAME"`
	Version   string `json:"version,omitempty" column:"VERSION"`     // of Postern
	Advertise string `json:"advertise,omitempty" column:"ADVERTISE"` // host:port that connectors dial, if it is set
	// StartedAt is when it started.
	StartedAt time.Time `json:"started_at" column:"STARTED,ago"`
	// State is "serving", "draining", "without_store", "lost" or "unknown".
	State string `json:"state"`
	// ContactAt is when it last reached the store; only with "without_store" and "lost".
	ContactAt *time.Time `json:"contact_at,omitempty"`
	// ServesUntil is when it stops accepting requests unless it reaches the store; only with "without_store".
	ServesUntil *time.Time `json:"serves_until,omitempty"`
	Leader      bool       `json:"leader"` // performs the duties of the whole cluster
	Self        bool       `json:"self"`   // is the edge that answers
	// Problem is why the edge that answers cannot reach the store, or change it. It is for operators only.
	Problem string `json:"problem,omitempty"`
}

// StateText is the state in words. With EdgeWithoutStore, callers append "until" and ServesUntil.
func (e Edge) StateText() string {
	switch {
	case e.State == EdgeWithoutStore && e.Self:
		return "serving without the store"
	case e.State == EdgeWithoutStore: // it may have crashed
		return "may serve without the store"
	}
	return e.State
}

// MayEdges returns an error unless the gateway is in a cluster and the caller may see and change its edges. Edges
// belong to no account: operators and users of the default account may.
func (s *Service) MayEdges(ctx context.Context) error {
	account, err := s.account(ctx)
	switch {
	case err != nil:
		return err
	case !CallerFrom(ctx).Operator && account != store.DefaultAccount:
		return faultf(ErrForbidden, "only operators and users of the account %q can see and change the edges of the cluster",
			store.DefaultAccount)
	case s.cluster == nil:
		return faultf(ErrNotReady, "this gateway is not in a cluster: it has its own store. To share one among gateways, "+
			"use `storage etcd { … }` in the global options")
	}
	return nil
}

// Edges lists the edges of the cluster, by name.
func (s *Service) Edges(ctx context.Context) ([]Edge, error) {
	if err := s.MayEdges(ctx); err != nil {
		return nil, err
	}
	return s.AllEdges(CallerFrom(ctx).Operator), nil
}

// AllEdges is Edges without a caller, and with the Problem only on request. It is empty if the gateway is alone.
func (s *Service) AllEdges(problem bool) []Edge {
	edges := []Edge{}
	if s.cluster == nil {
		return edges
	}
	for _, e := range s.store.Edges() {
		edges = append(edges, s.edgeOf(e.Edge, problem))
	}
	return edges
}

func (s *Service) edgeOf(e store.Edge, problem bool) Edge {
	view := Edge{
		Name: e.Name, Version: e.Version, Advertise: e.Advertise, StartedAt: e.StartedAt,
		State: EdgeServing, Leader: s.cluster.LeaderName() == e.Name, Self: s.cluster.Name() == e.Name,
	}
	if e.Draining {
		view.State = EdgeDraining
	}
	contact := s.cluster.Contact(e.Name)
	if problem {
		view.Problem = contact.Problem
	}
	switch {
	case contact.Unknown:
		view.State = EdgeUnknown
		return view
	case contact.Last.IsZero():
		return view
	}
	view.State, view.ContactAt = EdgeLost, new(contact.Last.UTC().Truncate(time.Second))
	if s.now().Before(contact.Until) {
		view.State, view.ServesUntil = EdgeWithoutStore, new(contact.Until.UTC().Truncate(time.Second))
	}
	return view
}

// DrainEdge makes an edge not ready, so that load balancers use the others. It still serves requests.
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
	return s.edgeOf(e, false), nil
}

// RemoveEdge asks for the removal of an edge.
type RemoveEdge struct {
	Edge    string `json:"-" path:"record"`
	Stopped string `json:"stopped" need:"filled" format:"true" help:"true: its program has certainly stopped, so it is removed at once" flaghelp:"Remove the edge at once: its program has certainly stopped"`
}

// RemoveEdge removes an edge that certainly accepts no requests.
func (s *Service) RemoveEdge(ctx context.Context, r RemoveEdge) (Edge, error) {
	if r.Stopped != "" && r.Stopped != "true" {
		return Edge{}, badRequest("query parameter %q must be %q: the edge's program has certainly stopped", "stopped",
			"true")
	}
	if err := s.MayEdges(ctx); err != nil {
		return Edge{}, err
	}
	e, _ := s.store.FindEdge(r.Edge)
	removed := s.edgeOf(e.Edge, false)
	if err := s.cluster.Remove(ctx, r.Edge, r.Stopped != ""); err != nil {
		return Edge{}, err
	}
	s.audit(ctx, "edge.remove", "", r.Edge, r.Edge, "stopped", r.Stopped != "")
	return removed, nil
}
