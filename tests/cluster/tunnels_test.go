package cluster

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
)

// TestNotAtAnEdge: a connector that does not reach an edge serves at the others. These name it, with the reason, and
// the doctor finds it.
func TestNotAtAnEdge(t *testing.T) {
	t.Parallel()
	dark, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	defer dark.Close()
	etcd := start(t, 1)
	edges, con := startEdges(t, etcd, "a", "b")
	address := dark.LocalAddr().String()
	c := &gateway{
		Gateway: harness.Start(t, inEtcd("c\n advertise "+address, etcd.urls()...)), name: "c", up: edges["a"].up,
	}
	edges["a"].Deploy(t, "m-c", "box", "", "m")
	awaitTunnels(t, edges, con)
	_, key := edges["a"].Key(t, "key", "*")
	for _, g := range edges {
		g.await(t, g.Client(t, key), http.StatusOK, "the key")
		harness.Poll(t, limit, "the edge in the list of "+g.name, func(ctx context.Context) error {
			list, err := g.Connectors(ctx)
			if err == nil && (len(list[0].NotAt) != 1 || list[0].NotAt[0].Edge != "c" || list[0].NotAt[0].Reason == "") {
				err = fmt.Errorf("%+v", list[0])
			}
			return err
		})
		if got := g.chat(t, g.Client(t, key)); got != http.StatusOK {
			t.Errorf("at %s: %d", g.name, got)
		}
	}
	c.await(t, c.Client(t, key), http.StatusServiceUnavailable, "a request at an edge without the tunnel")
	if results := con.Doctor(t); results["edges"] != "failed" || results["token"] != "ok" {
		t.Errorf("the doctor: %v", results)
	}
}
