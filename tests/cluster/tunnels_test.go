package cluster

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
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

// TestEachEdge sends requests to an edge, and not to the one that the connector's token names.
func TestEachEdge(t *testing.T) {
	t.Parallel()
	edges, con := startEdges(t, start(t, 1), "a", "b", "c")
	awaitTunnels(t, edges, con)
	_, key := edges["a"].Key(t, "key", "*")
	for _, g := range edges {
		g.await(t, g.Client(t, key), http.StatusOK, "the key")
	}
	entry := edges["c"]
	client := entry.Client(t, key)
	chat := harness.Chat("m-c", `,"stream":true`)

	t.Run("spans", func(t *testing.T) {
		const trace = "0af7651916cd43dd8448eb211c80319c"
		client.Do(t, http.MethodPost, "/v1/chat/completions", harness.Chat("m-"+entry.name, ""),
			"Traceparent: 00-"+trace+"-b7ad6b7169203331-01")
		_, span := entry.Spans(t, trace)
		if got, want := entry.up.Last(t).Header.Get("Traceparent"), "00-"+trace+"-"+span.SpanContext.SpanID+
			"-01"; got != want {
			t.Errorf("the model server got traceparent %q; want %q", got, want)
		}
	})
	t.Run("large body", func(t *testing.T) {
		long := strings.Repeat("x", 8<<20)
		a := client.Post(t, harness.Chat("m-"+entry.name, `,"user":"`+long+`"`))
		if a.Status != http.StatusOK || !strings.Contains(string(entry.up.Last(t).Body), long) {
			t.Errorf("status %d: %.200s", a.Status, a.Body)
		}
	})
	t.Run("broken upstream", func(t *testing.T) {
		entry.up.Handle("", func(x *upstream.Exchange) {
			x.Stream()
			x.Chunk(upstream.Role("m") + upstream.Delta("m", "one"))
			x.Die()
		})
		for _, g := range edges {
			text, err := g.Client(t, key).Stream(t, chat).Rest()
			if !strings.Contains(text, "one") || !strings.Contains(text, `"code":"upstream_error"`) ||
				strings.Contains(text, "[DONE]") {
				t.Errorf("at %s: %s, %v", g.name, text, err)
			}
		}
	})
	t.Run("client leaves", func(t *testing.T) {
		entry.up.Handle("", upstream.SlowTokens(time.Hour, nil))
		stream := client.Stream(t, chat)
		if _, err := stream.Next(); err != nil {
			t.Fatal(err)
		}
		stream.Close()
		entry.up.WaitRunning(t, 0)
	})
}
