package cluster

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

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

	harness.Poll(t, limit, "all tunnels in the list", func(ctx context.Context) error {
		list, err := entry.Connectors(ctx)
		if err == nil && !slices.Equal(list[0].Edges, []string{"a", "b", "c"}) {
			err = fmt.Errorf("%+v", list[0])
		}
		return err
	})
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
