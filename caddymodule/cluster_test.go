package caddymodule

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/postern-dev/postern/caddymodule/cluster/edge"
	"github.com/postern-dev/postern/caddymodule/gateway"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/rig/wait"
	"github.com/postern-dev/postern/tests/storetest"
)

// newTestEdge serves a site of an edge whose cluster shares kv.
func newTestEdge(t *testing.T, kv store.KV, name string) *testSite {
	t.Helper()
	file := filepath.Join(t.TempDir(), "edge.db")
	open := func(context.Context, *slog.Logger) (store.KV, error) { return storetest.Share(kv), nil }
	self := store.Edge{Name: name, OnStoreLoss: 5 * time.Second}
	join := edge.Options{Path: file, Shared: open, Edge: self}.Join
	_, release, err := acquireStore(gateway.StoreConfig{Path: file, Shared: open, Join: join},
		slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(func() { _ = release() })
	// The configuration finds the open store.
	app := provision(t, "{\n model_gateway {\n  listen "+freeUDP(t)+"\n  storage bolt "+file+
		"\n }\n}\nhttp://:8080 {\n model_gateway\n model_console\n}")
	app.store.Messages = io.Discard
	start(t, app)
	httpApp, err := app.ctx.AppIfConfigured("http")
	must(t, err)
	server := httptest.NewServer(httpApp.(*caddyhttp.App).Servers["srv0"])
	t.Cleanup(server.Close)
	return &testSite{app, server.URL, ""}
}

// ready returns the answer of the health checks, which is the same on both paths.
func (s *testSite) ready(t *testing.T) (int, string) {
	t.Helper()
	for {
		a, body := s.do(t, http.MethodGet, "/readyz", "")
		b, text := s.do(t, http.MethodGet, "/.well-known/postern/ready", "")
		if again, _ := s.do(t, http.MethodGet, "/readyz", ""); again.StatusCode != a.StatusCode {
			continue // it changed between the two requests
		}
		if b.StatusCode != a.StatusCode || text != body || b.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("/readyz: %d %q, /.well-known/postern/ready: %d %q %v", a.StatusCode, body, b.StatusCode, text, b.Header)
		}
		return a.StatusCode, body
	}
}

// metrics returns the values of the metrics of clusters, by name and label.
func (s *testSite) metrics(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := s.app.ctx.GetMetricsRegistry().Gather()
	must(t, err)
	values := map[string]float64{}
	names := []string{
		"postern_store_reachable", "postern_store_contact_age_seconds", "postern_edge_leader",
		"postern_edges", "postern_barrier_seconds",
	}
	for _, family := range families {
		if !slices.Contains(names, family.GetName()) {
			continue
		}
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			values[name] = m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return values
}

// An edge that drains or has lost the store is not ready. The other edges and the metrics show that.
func TestEdges(t *testing.T) {
	kv, err := store.OpenBolt(filepath.Join(t.TempDir(), "shared.db"), store.BoltOptions{})
	must(t, err)
	t.Cleanup(func() { _ = kv.Close() })
	shared := storetest.WithLeases(kv)
	a, b := newTestEdge(t, shared, "a"), newTestEdge(t, shared, "b")
	operator := manage.WithCaller(t.Context(), manage.Caller{Name: "root", Operator: true})
	service, err := a.app.gateway.Manage()
	must(t, err)
	wait.Until(t, "a sees b", func() bool { return len(service.AllEdges(false)) == 2 })
	for _, s := range []*testSite{a, b} {
		if status, text := s.ready(t); status != http.StatusOK || text != "ready\n" {
			t.Errorf("%d %q", status, text)
		}
	}
	if e, err := service.DrainEdge(operator, "b"); err != nil || e.State != manage.EdgeDraining || e.Self {
		t.Errorf("draining: %+v, %v", e, err)
	}
	wait.Until(t, "b drains", func() bool {
		status, text := b.ready(t)
		return status == http.StatusServiceUnavailable && text == "draining\n"
	})
	if status, _ := b.do(t, http.MethodGet, "/v1/models", ""); status.StatusCode != http.StatusUnauthorized {
		t.Errorf("a draining edge answers requests with %d", status.StatusCode)
	}
	if status, _ := a.ready(t); status != http.StatusOK {
		t.Errorf("a: %d", status)
	}
	key, _, err := a.app.store.Opened().Store.CreateKey(t.Context(), "default", store.KeyFields{Name: "k", Scope: "*"})
	must(t, err)
	before := a.metrics(t)["postern_barrier_seconds confirmed"]
	must(t, errOf(service.RevokeKey(operator, key.ID)))
	m := a.metrics(t)
	if m["postern_store_reachable"] != 1 || m["postern_edge_leader"] != 1 ||
		m["postern_store_contact_age_seconds"] != 0 || m["postern_edges serving"] != 1 ||
		m["postern_edges draining"] != 1 || m["postern_edges lost"] != 0 ||
		m["postern_barrier_seconds confirmed"] != before+1 {
		t.Errorf("metrics of a: %v", m)
	}
	if m := b.metrics(t); m["postern_edge_leader"] != 0 || m["postern_store_reachable"] != 1 {
		t.Errorf("metrics of b: %v", m)
	}
	if _, err := service.UndrainEdge(operator, "b"); err != nil {
		t.Error(err)
	}
	wait.Until(t, "b is ready", func() bool { status, _ := b.ready(t); return status == http.StatusOK })

	_ = kv.Close() // the store is lost
	wait.Until(t, "a has lost the store", func() bool {
		status, text := a.ready(t)
		return status == http.StatusServiceUnavailable && text == "lost the store\n"
	})
	status, err := service.Status(operator)
	if err != nil || len(status.Edges) != 2 || !status.Edges[0].Self || status.Edges[0].State != manage.EdgeLost ||
		status.Edges[0].Leader {
		t.Errorf("status: %+v, %v", status.Edges, err)
	}
	if m := a.metrics(t); m["postern_store_reachable"] != 0 || m["postern_edge_leader"] != 0 ||
		m["postern_store_contact_age_seconds"] < 4 || m["postern_edges lost"] < 1 {
		t.Errorf("metrics of a: %v", m)
	}
}

// A gateway that is alone has a store, is ready, and has no metrics of a cluster.
func TestNoEdges(t *testing.T) {
	s := newTestSite(t, "model_gateway")
	if status, text := s.ready(t); status != http.StatusOK || text != "ready\n" {
		t.Errorf("%d %q", status, text)
	}
	metrics := s.metrics(t)
	if metrics["postern_store_reachable"] != 1 {
		t.Error("the store is not reachable")
	}
	for name, value := range metrics {
		if name != "postern_store_reachable" && name != "postern_barrier_seconds confirmed" { // of the process
			t.Errorf("%s is %v", name, value)
		}
	}
	service, err := s.app.gateway.Manage()
	must(t, err)
	status, err := service.Status(manage.WithCaller(t.Context(), manage.Caller{Operator: true}))
	if err != nil || status.Edges != nil {
		t.Errorf("status: %+v, %v", status.Edges, err)
	}
}
