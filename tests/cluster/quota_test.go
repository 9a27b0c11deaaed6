package cluster

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
)

// TestQuota: a limit of a key holds for all edges together.
func TestQuota(t *testing.T) {
	t.Parallel()
	edges, con := startEdges(t, start(t, 1), "a", "b", "c")
	awaitLegs(t, edges, con)
	const quota = 150
	id, key := edges["a"].Key(t, "limited", "*")
	edges["a"].Manage(t, http.MethodPatch, "/keys/"+id, map[string]any{"limits": map[string]int{"requests_per_day": quota}}, nil)
	var taken atomic.Int64
	var clients sync.WaitGroup
	for _, g := range edges {
		for range 8 {
			client := g.Client(t, key)
			clients.Go(func() {
				for {
					a := client.Post(t, harness.Chat("m-"+g.name, ""))
					switch a.Status {
					case http.StatusOK:
						taken.Add(1)
						continue
					case http.StatusTooManyRequests:
					default:
						t.Errorf("a request at %s: status %d, %s", g.name, a.Status, a.Body)
					}
					return
				}
			})
		}
	}
	clients.Wait()
	if n := taken.Load(); n != quota {
		t.Errorf("%d requests of %d", n, quota)
	}
}
