package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

// Subscribers get the first report of an edge and the end of its reports as changes of the edge, and
// other reports, which come every few seconds, as changes of another kind.
func TestReportChanges(t *testing.T) {
	t.Parallel()
	ctx, kv := t.Context(), storetest.WithLeases(storetest.OpenBolt(t, t.TempDir()+"/gateway.db"))
	s, err := store.New(kv, store.Options{Edge: "a"})
	must(t, err)
	defer s.Close()
	var kinds []string
	s.Subscribe(func(c store.Change) { kinds = append(kinds, c.Kind+" "+c.ID) })
	self := store.Edge{Name: "a", Instance: "x", StartedAt: time.Now()}
	lease, err := kv.Lease(ctx, time.Hour)
	must(t, err)
	must(t, s.AddEdge(ctx, self))
	for i := range int64(3) {
		revision, err := s.SaveReport(ctx, self, store.Report{Applied: i}, lease.ID())
		if err == nil {
			err = s.Reach(ctx, revision)
		}
		if e, _ := s.FindEdge("a"); err != nil || e.Report == nil || e.Report.Applied != i || e.ReportRevision != revision {
			t.Fatalf("after report %d: %+v, %v", i, e, err)
		}
	}
	must(t, lease.Revoke(ctx))
	must(t, s.CatchUp(ctx))
	if want := []string{"edge a", "edge a", "edge report a", "edge report a", "edge a"}; !slices.Equal(kinds, want) {
		t.Errorf("the changes are %q, not %q", kinds, want)
	}
}
