package store

import (
	"context"
	"slices"
	"time"
)

// Edge is a gateway of a cluster: one of those that share the store.
type Edge struct {
	Name string `json:"name"`
	// Instance identifies the data directory, so that two gateways with the same name are detected.
	Instance  string    `json:"instance"`
	Advertise string    `json:"advertise,omitempty"` // host:port that its connectors dial
	Version   string    `json:"version,omitempty"`   // of the program
	StartedAt time.Time `json:"started_at"`
	Draining  bool      `json:"draining,omitempty"` // connectors and clients shall use other edges
	// OnStoreLoss is how long it accepts requests after its last contact with the store.
	OnStoreLoss time.Duration `json:"on_store_loss"`
	// Boot identifies the locked data file during one run of the machine. So a process with the same Boot
	// could open the file only after the other had ended. "" is not known, and equals no other Boot.
	Boot string `json:"boot,omitempty"`
}

// Is reports whether both are the same process.
func (e Edge) Is(other Edge) bool {
	return e.Name == other.Name && e.Instance == other.Instance && e.StartedAt.Equal(other.StartedAt)
}

// Succeeds reports whether e is a later process with the data directory of other. Only one process
// at a time can open it, so other has ended.
func (e Edge) Succeeds(other Edge) bool {
	return e.Instance == other.Instance && e.Boot == other.Boot && e.Boot != "" && !e.Is(other)
}

// minMargin is the minimum time between the last request of an edge and the end of its report.
const minMargin = 5 * time.Second

// LeaseTime returns how long the report of an edge lasts after the last contact with the store.
func (e Edge) LeaseTime() time.Duration { return e.OnStoreLoss + max(e.OnStoreLoss/4, minMargin) }

// Report is the published state of an edge. It ends with a lease.
type Report struct {
	// Applied is the revision up to which all changes have taken effect at the edge.
	Applied int64 `json:"applied"`
}

// EdgeState is an edge and its report.
type EdgeState struct {
	Edge
	Revision       int64   // of the edge's record
	Report         *Report // nil: it accepts nothing
	ReportRevision int64   // 0 without a report
}

// FreeFor reports whether a process may become this edge: no other process accepts requests as this edge.
func (e EdgeState) FreeFor(process Edge) bool {
	return e.Report == nil || e.Is(process) || process.Succeeds(e.Edge)
}

// Contact describes the contact of an edge to the store, as far as this gateway knows.
type Contact struct {
	// Unknown is set if this gateway has no contact, and therefore cannot know that of others.
	Unknown bool
	// Last is when the edge last had contact; zero: it has contact now.
	Last time.Time
	// Until is when the edge refuses all requests at the latest, unless it gets contact.
	Until time.Time
	// Problem is why this gateway cannot reach the store, or change it. It is empty for other edges.
	Problem string
}

type edgeRecord struct {
	header
	Edge
}

func (r *edgeRecord) key() recordKey { return recordKey{id: r.Name} }
func (r *edgeRecord) label() string  { return r.Name }

type reportRecord struct {
	header
	Report
	Name string `json:"name"`
}

func (r *reportRecord) key() recordKey { return recordKey{id: r.Name} }
func (r *reportRecord) label() string  { return r.Name }
func (r *reportRecord) state() string  { return "reported" }

var edgeKind = &kind[edgeRecord, *edgeRecord]{
	dir:        "edges/",
	what:       KindEdge,
	collection: func(r *records) *collection[*edgeRecord] { return &r.edges },
}

var reportKind = &kind[reportRecord, *reportRecord]{
	dir:        "edge_reports/",
	what:       KindEdge,
	collection: func(r *records) *collection[*reportRecord] { return &r.reports },
	amend: func(_ *records, _ *reportRecord, c *Change) {
		if c.State == c.Was {
			c.Kind = KindReport
		}
	},
}

// Edges returns the edges of the cluster in the order of their names.
func (s *Store) Edges() []EdgeState {
	v := s.view.Load()
	return list(edgeKind.all(&v.records), func(r *edgeRecord) (EdgeState, bool) { return r.edgeState(v), true })
}

// UnreadableEdges returns the names of edges whose record or report this program cannot read.
func (s *Store) UnreadableEdges() (names []string) {
	for path := range s.view.Load().unreadable.all() {
		if dir, key := splitPath(path); dir == edgeKind.dir || dir == reportKind.dir {
			names = append(names, key.id)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// FindEdge returns an edge of the cluster.
func (s *Store) FindEdge(name string) (EdgeState, bool) {
	v := s.view.Load()
	r, ok := edgeKind.byID(v, name)
	return r.edgeState(v), ok
}

func (r *edgeRecord) edgeState(v *view) EdgeState {
	report, ok := reportKind.byID(v, r.Name)
	if !ok {
		report = nil
	}
	return r.withReport(report)
}

// withReport returns the edge with its report, nil if there is none.
func (r *edgeRecord) withReport(report *reportRecord) EdgeState {
	e := EdgeState{Edge: r.Edge, Revision: r.revision}
	if report != nil {
		e.Report, e.ReportRevision = &report.Report, report.revision
	}
	return e
}

// AddEdge adds an edge, or replaces its record of an earlier process. It removes the records that its
// instance has left under other names. It fails with ErrUnavailable while the name is not free, and
// with ErrExists if another edge has the instance.
func (s *Store) AddEdge(ctx context.Context, e Edge) error {
	return s.update(ctx, "joining the cluster", func(t *tx) error {
		if old := edgeKind.load(t, "", e.Name); old != nil {
			report := reportKind.load(t, "", e.Name)
			switch {
			case !old.withReport(report).FreeFor(e):
				return Errorf(ErrUnavailable, "another gateway called %s has just joined the cluster", e.Name)
			case old.Is(e):
				e.Draining = old.Draining // the report stays in force for running requests
			case report != nil:
				t.delete(reportKind.path("", e.Name))
			}
		}
		for _, other := range s.Edges() {
			if other.Name == e.Name || other.Instance != e.Instance {
				continue
			}
			old, report := edgeKind.load(t, "", other.Name), reportKind.load(t, "", other.Name)
			switch {
			case old == nil || old.Instance != e.Instance:
				continue
			case !old.withReport(report).FreeFor(e):
				return errCopied(old.Edge)
			}
			t.delete(edgeKind.path("", other.Name), reportKind.path("", other.Name))
		}
		edgeKind.save(t, &edgeRecord{Edge: e})
		return nil
	})
}

// errCopied is the error of a gateway with the data directory of another one.
func errCopied(other Edge) error {
	return Errorf(ErrExists, "another gateway of the cluster, %s, uses a copy of this data directory, "+
		"or did so less than %s ago: delete model_gateway/edge.db here, and this gateway gets an identity of its own",
		other.Name, other.LeaseTime().Round(time.Second))
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

// RemoveEdge removes the record and the report of a process, which must no longer accept
// requests. If another process has become the edge, it changes nothing.
func (s *Store) RemoveEdge(ctx context.Context, e Edge) error {
	return s.update(ctx, "removing the edge", func(t *tx) error {
		if r := edgeKind.load(t, "", e.Name); r != nil && r.Is(e) {
			t.delete(edgeKind.path("", e.Name), reportKind.path("", e.Name))
		}
		return nil
	})
}

// RemoveLostEdge removes an edge that accepts no requests. It fails with ErrConflict if the edge has
// changed, or has a new report.
func (s *Store) RemoveLostEdge(ctx context.Context, e EdgeState) error {
	return s.update(ctx, "removing the edge", func(t *tx) error {
		r, report := edgeKind.load(t, "", e.Name), reportKind.load(t, "", e.Name)
		switch {
		case r == nil:
			return errNoEdge(e.Name)
		case r.revision != e.Revision, report != nil && e.Report == nil:
			return Errorf(ErrConflict, "the edge %s has changed or come back in the meantime: check `caddy gateway edge list`",
				e.Name)
		}
		t.delete(edgeKind.path("", e.Name), reportKind.path("", e.Name))
		return nil
	})
}

func errNoEdge(name string) error {
	return Errorf(ErrNotFound, "the cluster has no edge called %.80q: `caddy gateway edge list` shows all", name)
}

// SaveReport writes the report of a process, which ends with the lease, and returns its revision. It
// fails with ErrNotFound if the lease has ended, or if the record of the edge is no longer that of the
// process: a late report never counts for another process. It does not wait for the view.
func (s *Store) SaveReport(ctx context.Context, e Edge, r Report, lease LeaseID) (revision int64, err error) {
	op, err := encode(reportKind.path("", e.Name), &reportRecord{Report: r, Name: e.Name})
	if err != nil {
		return 0, err
	}
	op.Lease = lease
	for {
		old, _ := s.FindEdge(e.Name)
		if !old.Is(e) {
			return 0, Errorf(ErrNotFound, "another gateway has taken the place of this one, or an operator has removed it")
		}
		unchanged := Compare{Key: edgeKind.path("", e.Name), ModRevision: old.Revision}
		result, err := s.shared.Txn(ctx, Txn{If: []Compare{unchanged}, Then: []Op{op}})
		if err != nil || result.Succeeded {
			return result.Revision, err
		}
		// The record may have changed only in Draining: read it again.
		if err := s.CatchUp(ctx); err != nil {
			return 0, err
		}
	}
}

// Lease creates a lease in the shared KV. Only a gateway of a cluster calls it.
func (s *Store) Lease(ctx context.Context, ttl time.Duration) (Lease, error) {
	return s.shared.(Leaser).Lease(ctx, ttl)
}
