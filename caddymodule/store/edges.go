package store

import (
	"context"
	"slices"
	"time"
)

// Edge is a gateway of a cluster: one of those that share the store.
type Edge struct {
	Name string `json:"name"`
	// Instance is different for each data directory, so that two edges do not have the same
	// name unnoticed.
	Instance  string    `json:"instance"`
	Advertise string    `json:"advertise,omitempty"` // host:port that its connectors dial
	Peer      string    `json:"peer,omitempty"`      // host:port that other edges dial
	Region    string    `json:"region,omitempty"`
	Version   string    `json:"version,omitempty"` // of the program
	StartedAt time.Time `json:"started_at"`
	Draining  bool      `json:"draining,omitempty"` // connectors and clients shall use other edges
	// OnStoreLoss is how long it accepts requests without contact to the store, while most of
	// Electorate say that they have none either.
	OnStoreLoss   time.Duration `json:"on_store_loss,omitempty"`
	Electorate []string      `json:"electorate,omitempty"` // instances of edges, its own among them
}

// Report is what an edge tells the others while it has the store. It ends with a lease.
type Report struct {
	// Applied is the revision up to which all changes have taken effect at the edge.
	Applied int64 `json:"applied"`
	// Contact is a random number. It is another one if the edge has meanwhile told
	// others that it does not have the store.
	Contact int64 `json:"contact"`
}

// EdgeState is an edge and its report.
type EdgeState struct {
	Edge
	Revision int64   // of the edge's record
	Report   *Report // nil: it has lost the store, or it is starting
}

// Contact is what this gateway knows of the contact of an edge to the store.
type Contact struct {
	// Unknown: this gateway has no contact itself, so it knows nothing new of the others.
	Unknown bool
	// Last is when the edge last had contact; zero: it has contact now.
	Last time.Time
	// Until is when it refuses all requests at the latest, if it gets no contact.
	Until time.Time
}

type edgeRecord struct {
	header
	Edge
}

func (r *edgeRecord) place() key    { return key{id: r.Name} }
func (r *edgeRecord) label() string { return r.Name }

type reportRecord struct {
	header
	Report
	Name string `json:"name"`
}

func (r *reportRecord) place() key    { return key{id: r.Name} }
func (r *reportRecord) label() string { return r.Name }

var edgeKind = &kind[edgeRecord, *edgeRecord]{
	dir:  "edges/",
	what: KindEdge,
	in:   func(r *records) *collection[*edgeRecord] { return &r.edges },
}

var reportKind = &kind[reportRecord, *reportRecord]{
	dir:  "edge_reports/",
	what: KindEdge,
	in:   func(r *records) *collection[*reportRecord] { return &r.reports },
}

// Edges returns the edges of the cluster in the order of their names. Their Electorate must
// not be changed.
func (s *Store) Edges() []EdgeState {
	v := s.view.Load()
	return list(edgeKind.all(&v.records), func(r *edgeRecord) (EdgeState, bool) { return r.in(v), true })
}

// FindEdge returns an edge of the cluster.
func (s *Store) FindEdge(name string) (EdgeState, bool) {
	v := s.view.Load()
	r, ok := edgeKind.named(v, name)
	return r.in(v), ok
}

func (r *edgeRecord) in(v *view) EdgeState {
	e := EdgeState{Edge: r.Edge, Revision: r.revision}
	if report, ok := reportKind.named(v, r.Name); ok {
		e.Report = &report.Report
	}
	return e
}

// AddEdge adds an edge, or replaces its record of an earlier time. It removes the records
// that the edge has left under other names. It fails with ErrExists if another edge has the
// name and reports. The electorate are all edges that there are.
func (s *Store) AddEdge(ctx context.Context, e Edge) (Edge, error) {
	return update(ctx, s, "joining the cluster", func(t *tx) (Edge, error) {
		old, report := edgeKind.load(t, "", e.Name), reportKind.load(t, "", e.Name)
		if old != nil && report != nil && old.Instance != e.Instance {
			return Edge{}, Errorf(ErrExists, "another gateway of the cluster is called %s: give each its own name with `edge { name … }`", e.Name)
		}
		if old != nil && old.StartedAt.Equal(e.StartedAt) {
			e.Draining = old.Draining
		}
		e.Electorate = []string{e.Instance}
		for _, other := range s.Edges() {
			switch {
			case other.Name == e.Name:
			case other.Instance == e.Instance:
				t.delete(edgeKind.path("", other.Name))
			default:
				e.Electorate = append(e.Electorate, other.Instance)
			}
		}
		slices.Sort(e.Electorate)
		edgeKind.save(t, &edgeRecord{Edge: e})
		return e, nil
	})
}

// EdgeInstances returns the sorted instances of the edges.
func (s *Store) EdgeInstances() []string {
	all := list(edgeKind.all(&s.view.Load().records), func(r *edgeRecord) (string, bool) { return r.Instance, true })
	slices.Sort(all)
	return all
}

// ChangeEdge changes the record of an edge.
func (s *Store) ChangeEdge(ctx context.Context, name string, change func(*Edge)) (Edge, error) {
	return update(ctx, s, "changing the edge", func(t *tx) (Edge, error) {
		r := edgeKind.load(t, "", name)
		if r == nil {
			return Edge{}, errNoEdge(name)
		}
		change(&r.Edge)
		edgeKind.save(t, r)
		return r.Edge, nil
	})
}

// RemoveEdge removes an edge, which must have stopped to accept requests. It changes nothing
// if there is another one with the name, or if the edge has started again.
func (s *Store) RemoveEdge(ctx context.Context, e Edge) error {
	return s.update(ctx, "removing the edge", func(t *tx) error {
		if r := edgeKind.load(t, "", e.Name); r != nil && r.Instance == e.Instance && r.StartedAt.Equal(e.StartedAt) {
			t.delete(edgeKind.path("", e.Name), reportKind.path("", e.Name))
		}
		return nil
	})
}

// RemoveLostEdge removes an edge without a report that refuses all requests. It fails with
// ErrConflict if the edge has changed or reports again.
func (s *Store) RemoveLostEdge(ctx context.Context, e EdgeState) error {
	return s.update(ctx, "removing the edge", func(t *tx) error {
		r, report := edgeKind.load(t, "", e.Name), reportKind.load(t, "", e.Name)
		switch {
		case r == nil:
			return errNoEdge(e.Name)
		case report != nil || r.revision != e.Revision:
			return Errorf(ErrConflict, "the edge %s has changed or come back meanwhile: look at `caddy gateway edge list`", e.Name)
		}
		t.delete(edgeKind.path("", e.Name))
		return nil
	})
}

func errNoEdge(name string) error {
	return Errorf(ErrNotFound, "the cluster has no edge called %.80q: `caddy gateway edge list` shows all", name)
}

// SaveReport writes the report of an edge, which ends with the lease. It does not wait until
// the report is in the view.
func (s *Store) SaveReport(ctx context.Context, name string, r Report, lease LeaseID) error {
	op, err := encode(reportKind.path("", name), &reportRecord{Report: r, Name: name})
	if err != nil {
		return err
	}
	op.Lease = lease
	_, err = s.kv.Txn(ctx, Txn{Then: []Op{op}})
	return err
}

// Lease creates a lease in the shared KV. Only a gateway of a cluster calls it.
func (s *Store) Lease(ctx context.Context, ttl time.Duration) (Lease, error) {
	return s.kv.(Leaser).Lease(ctx, ttl)
}
