package edge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/dialect/kept"
	"github.com/postern-dev/postern/caddymodule/gateway"
	"github.com/postern-dev/postern/caddymodule/serve"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/tests/rig/wait"
	"github.com/postern-dev/postern/tests/storetest"
)

// openEdges returns edges of a cluster, which have no tunnel listeners.
func openEdges(t *testing.T, names ...string) (edges []*Edge) {
	t.Helper()
	shared := storetest.WithLeases(storetest.OpenBolt(t, filepath.Join(t.TempDir(), "shared.db")))
	for _, name := range names {
		path := filepath.Join(t.TempDir(), name+".db")
		open := func(context.Context, *slog.Logger) (store.KV, error) { return storetest.Share(shared), nil }
		o := Options{Path: path, Edge: store.Edge{Name: name, OnStoreLoss: time.Minute}, Shared: open}
		place := gateway.StoreConfig{Path: path, Shared: open, Join: o.Join}
		s := gateway.NewStore(place, slog.New(slog.DiscardHandler), gateway.Counters{})
		services, err := s.Get()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Destruct(); err != nil {
				t.Error(err)
			}
		})
		edges = append(edges, services.Cluster.(*Edge))
	}
	return edges
}

// TestAsked has edges without tunnel listeners, so that no question has a way to another one.
func TestAsked(t *testing.T) {
	t.Parallel()
	edges := openEdges(t, "a", "b")
	a, b := edges[0], edges[1]
	wait.Until(t, "both edges", func() bool {
		return len(a.services.Store.Edges()) == 2 &&
			len(b.services.Store.Edges()) == 2
	})
	t.Run("ids", func(t *testing.T) { testIDs(t, a, b) })
	t.Run("recent requests", func(t *testing.T) { testRecent(t, a) })
}

// testIDs: ids name the edge that made them, to the edges alone. They are as long as others.
func testIDs(t *testing.T, a, b *Edge) {
	ids := make(map[string]bool)
	for range 1000 {
		id := a.NewID("resp_")
		if len(id) != len(dialect.NewID("resp_")) || ids[id] {
			t.Fatalf("the id %s", id)
		}
		ids[id] = true
	}
	fetch := func(id string) error {
		return b.Fetch(t.Context(), kept.Owner{Account: "default"}, id, false, func(io.Reader) error { return nil })
	}
	if err := fetch(a.NewID("resp_")); !errors.Is(err, tunnel.ErrNoPeer) {
		t.Errorf("an id of another edge: %v", err)
	}
	for _, id := range []string{b.NewID("resp_"), dialect.NewID("resp_"), "", "x", strings.Repeat("A", 1<<16)} {
		if err := fetch(id); err != nil {
			t.Errorf("%.40q: %v", id, err)
		}
	}
}

// testRecent: the requests of an account are asked for at most once a second, edges that do not
// answer are named, and the largest list fits into an answer.
func testRecent(t *testing.T, a *Edge) {
	for range 3 {
		if list, silent := a.Reports(t.Context(), "default"); len(list) != 0 || strings.Join(silent, " ") != "b" {
			t.Fatalf("%v, silent: %v", list, silent)
		}
	}
	first := a.reports.get("default")
	a.reports.since = time.Now().Add(-reportTimeout)
	a.Reports(t.Context(), "other")
	if len(a.reports.accounts) != 1 || a.reports.get("default") == first {
		t.Errorf("an old answer is kept: %v", a.reports.accounts)
	}
	long := strings.Repeat("\x01", 1000)
	a.services.Activity.Record("default", activity.Request{
		Time: time.Now(), ID: long, KeyID: long, KeyName: long, Deployment: long, Dialect: long, Operation: long,
	})
	var r activity.Report
	// A report has no rows that are saved in the meantime.
	wait.Until(t, "rows of the key and the account", func() (ok bool) {
		var err error
		r, err = a.services.Activity.Report(t.Context(), "default")
		return err == nil && len(r.Usage) == 2
	})
	r.Usage = slices.Repeat(r.Usage, 1000) // as many as a report has at most
	var text bytes.Buffer
	if err := json.NewEncoder(&text).Encode(r); err != nil || text.Len() > maxReport {
		t.Errorf("%d bytes, %v", text.Len(), err)
	}
}

// Each edge finds the requests at the others, whose pages are merged with its own.
func TestFind(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t)
	socket := c.socket()
	storeA, a := c.open("a", socket.LocalAddr().String())
	storeB, b := c.open("b", "")
	a.services = &gateway.Services{Backend: &serve.Backend{
		Store: storeA, Activity: activity.New(activity.Options{Store: storeA}),
	}}
	b.services = &gateway.Services{Backend: &serve.Backend{
		Store: storeB, Activity: activity.New(activity.Options{Store: storeB}),
	}}
	t.Cleanup(func() { _ = errors.Join(a.services.Activity.Close(), b.services.Activity.Close()) })
	a.Use(c.listen(socket, tunnel.Options{Peers: a, Preauthenticate: a.Match}))
	b.Use(c.listen(c.socket(), tunnel.Options{Peers: b}))
	for i := range 30 {
		r := activity.Request{ID: fmt.Sprint(i), Time: time.UnixMilli(int64(i)), KeyID: "key_a", Deployment: "m"}
		if i%3 > 0 {
			r.KeyID = "key_b"
		}
		b.services.Activity.Record("default", r)
	}
	wait.Until(t, "an answer", func() bool {
		_, silent := a.Find(t.Context(), "default", activity.Query{Limit: 1})
		return len(silent) == 0
	})
	q, got := activity.Query{Keys: []string{"key_a"}, Model: "m", Limit: 4}, []string{}
	for pages := 0; pages == 0 || q.Before != ""; pages++ {
		found, silent := a.Find(t.Context(), "default", q)
		page := activity.Merge(q, found)
		for _, r := range page.Requests {
			got = append(got, r.ID)
		}
		if q.Before = page.Next; len(silent) > 0 {
			t.Fatalf("silent: %v", silent)
		}
	}
	if strings.Join(got, " ") != "27 24 21 18 15 12 9 6 3 0" {
		t.Errorf("%q", got)
	}
	if found, _ := a.Find(t.Context(), "other", activity.Query{Limit: 4}); len(activity.Merge(q, found).Requests) > 0 {
		t.Errorf("of another account: %+v", found)
	}
}
