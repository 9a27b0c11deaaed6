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

// startHop starts three edges. It returns the edge without a tunnel of the connector, the others, and a key.
func startHop(t *testing.T) (entry *gateway, with []*gateway, key string) {
	t.Helper()
	edges, con := startEdges(t, start(t, 1), "a", "b", "c")
	up, down := awaitTunnels(t, edges, con)
	slices.Sort(up)
	for _, name := range up {
		with = append(with, edges[name])
	}
	entry = edges[down[0]]
	_, key = edges["a"].Key(t, "key", "*")
	entry.await(t, entry.Client(t, key), http.StatusOK, "a hop")
	return entry, with, key
}

// TestHop sends requests to an edge without a tunnel of their connector.
func TestHop(t *testing.T) {
	t.Parallel()
	entry, with, key := startHop(t)
	client := entry.Client(t, key)
	chat := harness.Chat("m-"+entry.name, `,"stream":true`)

	harness.Poll(t, limit, "both tunnels at the edge without one", func(ctx context.Context) error {
		list, err := entry.Connectors(ctx)
		if err == nil && !slices.Equal(list[0].Edges, []string{with[0].name, with[1].name}) {
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
			t.Errorf("the model server got traceparent %q, want that of the first edge, %q", got, want)
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
		for _, g := range append(with, entry) {
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
