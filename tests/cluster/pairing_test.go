package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"testing"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

// awaitPairing waits until an edge lists a pairing that fulfills a condition.
func (g *gateway) awaitPairing(t *testing.T, id, what string, is func(manage.Pairing) bool) {
	t.Helper()
	harness.Poll(t, limit, what+" at "+g.name, func(context.Context) error {
		var list []manage.Pairing
		g.Command(t, &list, "pairing", "list")
		for _, p := range list {
			if p.ID == id && is(p) {
				return nil
			}
		}
		return fmt.Errorf("%+v", list)
	})
}

// TestPairingOverEdges: one edge creates the code, another one has the device, and a third one approves. All of them
// show the code, and can test the connector.
func TestPairingOverEdges(t *testing.T) {
	t.Parallel()
	etcd, up := start(t, 1), upstream.Start(t)
	up.Handle("", upstream.Echo)
	edges := startConsoles(t, etcd)
	a, b, c := edges[0], edges[1], edges[2]
	var p manage.Pairing
	a.Command(t, &p, "pairing", "start")
	for _, g := range edges {
		g.awaitPairing(t, p.ID, "the code", func(now manage.Pairing) bool { return now.Code == p.Code })
	}
	device := c.Pair(t, "box", p.Code, up.URL)
	for _, g := range edges {
		g.awaitPairing(t, p.ID, "the device",
			func(now manage.Pairing) bool { return now.State == store.PairingPending && now.Connected })
	}
	device.Signal(t, syscall.SIGTERM)
	device.WaitExit(t, limit)
	c.awaitPairing(t, p.ID, "a device that has left",
		func(now manage.Pairing) bool { return now.Device != nil && !now.Connected })
	a.Command(t, nil, "pairing", "deny", p.ID)

	a.Command(t, &p, "pairing", "start")
	c.Pair(t, "box-2", p.Code, up.URL, "--name", "box")
	b.awaitPairing(t, p.ID, "the device", func(now manage.Pairing) bool { return now.Connected })
	b.Command(t, &p, "pairing", "approve", p.Code, "--yes", "--name", "box")
	for _, g := range edges {
		harness.Poll(t, limit, "the connector at "+g.name, func(ctx context.Context) error {
			list, err := g.Connectors(ctx)
			if err == nil && (len(list) != 1 || list[0].State != manage.Online) {
				err = fmt.Errorf("%+v", list)
			}
			return err
		})
	}
	a.Deploy(t, "m", "box", "", "m")
	for _, g := range edges {
		harness.Poll(t, limit, "a test of the model at "+g.name, func(ctx context.Context) error {
			var result manage.TestResult
			g.Manage(t, http.MethodPost, "/deployments/m/test", struct{}{}, &result)
			if !result.OK || result.Connector != "box" {
				return errors.New(result.Error)
			}
			return nil
		})
	}
	testWrongCodes(t, edges, up.URL)
}

// testWrongCodes tries wrong codes at the first edge, which checks two of the five that all edges check at once. Then
// the right code must wait there, and works at another edge.
func testWrongCodes(t *testing.T, edges []*gateway, upstream string) {
	t.Helper()
	var p manage.Pairing
	edges[0].Command(t, &p, "pairing", "start")
	for i := range 2 {
		guess := edges[0].Pair(t, fmt.Sprint("guess-", i), fmt.Sprint("PAIR-0000-000", i), upstream)
		if code := guess.WaitExit(t, limit); code == 0 {
			t.Errorf("guess %d is paired", i)
		}
	}
	edges[0].Pair(t, "blocked", p.Code, upstream).WaitLog(t, "too many", limit)
	edges[1].Pair(t, "box-3", p.Code, upstream)
	edges[1].awaitPairing(t, p.ID, "the device", func(now manage.Pairing) bool { return now.Connected })
}
