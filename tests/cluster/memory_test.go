package cluster

import (
	"encoding/json"
	"net/http"
	"testing"
)

// TestKeptAtOneEdge: a kept response, and the row of its request in Activity, are at the edge that the client has used.
// The other edges name themselves, and refuse a request that refers to the response.
func TestKeptAtOneEdge(t *testing.T) {
	t.Parallel()
	edges, con := startEdges(t, start(t, 1), "a", "b")
	awaitTunnels(t, edges, con)
	a, b := edges["a"], edges["b"]
	_, key := a.Key(t, "key", "*")
	for _, g := range edges {
		g.await(t, g.Client(t, key), http.StatusOK, "the model at "+g.name)
	}
	kept := a.Client(t, key).Do(t, http.MethodPost, "/v1/responses", `{"model":"m-a","input":"one"}`)
	var response struct{ ID string }
	if err := json.Unmarshal([]byte(kept.Body), &response); err != nil || kept.Status != http.StatusOK {
		t.Fatalf("status %d: %s", kept.Status, kept.Body)
	}
	next := `{"model":"m-a","input":"two","previous_response_id":"` + response.ID + `"}`
	if got := a.Client(t, key).Do(t, http.MethodPost, "/v1/responses", next); got.Status != http.StatusOK {
		t.Errorf("at a: %d %s", got.Status, got.Body)
	}
	b.Client(t, key).Do(t, http.MethodPost, "/v1/responses", next).
		ExpectError(t, http.StatusBadRequest, "invalid_request_error", "previous_response_not_found")
	for name, g := range edges {
		var list struct {
			Edge     string
			Requests []struct{ Operation string }
		}
		g.Manage(t, http.MethodGet, "/activity?model=m-a&status=ok", nil, &list)
		responses := 0
		for _, r := range list.Requests {
			if r.Operation == "responses" {
				responses++
			}
		}
		if want := map[string]int{"a": 2}[name]; list.Edge != name || responses != want {
			t.Errorf("activity at %s: %+v", name, list)
		}
	}
}
