package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
)

// response is a kept response.
type response struct {
	ID     string
	Output []struct{ ID string }
}

// respond sends a request of the responses dialect for the model of the edge "a".
func (g *gateway) respond(t *testing.T, client *harness.Client, fields string) response {
	t.Helper()
	a := client.Do(t, http.MethodPost, "/v1/responses", `{"model":"m-a",`+fields+`}`)
	var r response
	if err := json.Unmarshal([]byte(a.Body), &r); err != nil || a.Status != http.StatusOK || len(r.Output) != 1 {
		t.Fatalf("status %d at %s: %s", a.Status, g.name, a.Body)
	}
	return r
}

// TestKeptOverEdges: requests refer to responses that another edge keeps, until that edge is gone.
func TestKeptOverEdges(t *testing.T) {
	t.Parallel()
	edges, con := startEdges(t, start(t, 1), "a", "b", "c")
	awaitTunnels(t, edges, con)
	a, b, c := edges["a"], edges["b"], edges["c"]
	_, key := a.Key(t, "key", "*")
	clients := map[*gateway]*harness.Client{a: a.Client(t, key), b: b.Client(t, key), c: c.Client(t, key)}
	for g, client := range clients {
		g.await(t, client, http.StatusOK, "the model at "+g.name)
	}
	secret := "the prompt of the first turn"
	first := a.respond(t, clients[a], `"input":"`+secret+`"`)
	// The peers do not connect at the same time.
	for g, client := range clients {
		harness.Poll(t, limit, "the response at "+g.name, func(context.Context) error {
			if got := client.Do(t, http.MethodGet, "/v1/responses/"+first.ID, ""); got.Status != http.StatusOK ||
				!strings.Contains(got.Body, first.Output[0].ID) {
				return fmt.Errorf("status %d: %s", got.Status, got.Body)
			}
			return nil
		})
	}
	if got := clients[c].Do(t, http.MethodGet, "/v1/responses/"+first.ID+"/input_items",
		""); !strings.Contains(got.Body, secret) {
		t.Errorf("input items: %d %s", got.Status, got.Body)
	}
	seen := func(what string, want ...string) {
		t.Helper()
		body := string(a.up.Last(t).Body)
		for _, part := range want {
			if !strings.Contains(body, part) {
				t.Errorf("%s: the model server got %s, without %q", what, body, part)
			}
		}
	}
	second := b.respond(t, clients[b], `"input":"two","previous_response_id":"`+first.ID+`"`)
	seen("previous at a", secret, "two")
	third := c.respond(t, clients[c], `"input":"three","previous_response_id":"`+second.ID+`"`)
	seen("previous at b", secret, "two", "three")
	c.respond(t, clients[c], `"input":[{"type":"item_reference","id":"`+first.Output[0].ID+
		`"},{"type":"item_reference","id":"`+second.Output[0].ID+
		`"},{"role":"user","content":"four"}]`)
	seen("items", "bytes", "four")

	_, another := a.Key(t, "another", "*")
	_, narrow := a.Key(t, "narrow", "m-b")
	for what, key := range map[string]string{"another key": another, "a narrow key": narrow} {
		if got := b.Client(t, key).Do(t, http.MethodGet, "/v1/responses/"+first.ID, ""); got.Status != http.StatusNotFound {
			t.Errorf("%s: status %d", what, got.Status)
		}
	}
	if got := clients[b].Do(t, http.MethodDelete, "/v1/responses/"+third.ID, ""); got.Status != http.StatusOK {
		t.Errorf("delete: %d %s", got.Status, got.Body)
	}
	for g, client := range clients {
		if got := client.Do(t, http.MethodGet, "/v1/responses/"+third.ID, ""); got.Status != http.StatusNotFound {
			t.Errorf("a deleted response at %s: %d", g.name, got.Status)
		}
	}
	a.Process.Signal(t, syscall.SIGKILL)
	a.Process.WaitExit(t, limit)
	got := clients[b].Do(t, http.MethodPost, "/v1/responses",
		`{"model":"m-a","input":"five","previous_response_id":"`+first.ID+`"}`)
	got.ExpectError(t, http.StatusBadRequest, "invalid_request_error", "previous_response_not_found")
	c.respond(t, clients[c], `"input":"six","previous_response_id":"`+second.ID+`"`)
}
