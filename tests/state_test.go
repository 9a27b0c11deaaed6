package tests

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

// The state of a model follows its server, and the connector's doctor what the
// gateway thinks of its token.
func testTrueState(t *testing.T, g *harness.Gateway) {
	_, key := g.Key(t, "all", "*")
	addr := harness.FreeAddr(t)
	con := g.Connector(t, "box", "http://"+addr)
	g.Deploy(t, "state", con.ID, "", "")
	state := func(want string) {
		t.Helper()
		harness.Poll(t, limit, "the deployment being "+want, func(context.Context) error {
			var list []struct{ State string }
			g.Manage(t, http.MethodGet, "/deployments", nil, &list)
			if len(list) != 1 || list[0].State != want {
				return fmt.Errorf("deployments: %+v", list)
			}
			return nil
		})
	}
	state("model_server_down")
	metrics := g.Metrics(t)
	for _, want := range []string{
		`postern_upstream_up{connector="` + con.ID + `",upstream="default"} 0`,
		`postern_deployment_state{deployment="state",state="model_server_down"} 1`,
	} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("metrics lack %s", want)
		}
	}
	up := upstream.StartAt(t, addr)
	up.Handle("GET /v1/models", upstream.Answer(http.StatusOK, "application/json", `{"data":[{"id":"other"}]}`))
	up.Handle("state", upstream.Echo)
	state("model_missing")
	// A state is only a report: it refuses no request.
	served(t, g.Client(t, key).Post(t, harness.Chat("state", "")), "a request")
	g.Deploy(t, "state", con.ID, "", "other")
	state("available")
	if n := len(up.Requests()); n != 1 {
		t.Errorf("the model server had %d requests of clients", n)
	}

	if got := con.Doctor(t)["token"]; got != "ok" {
		t.Errorf("the doctor finds the token %q", got)
	}
	if s, err := con.State(t.Context()); err != nil || s != "online" {
		t.Errorf("after the doctor's visit: %s, %v", s, err)
	}
	con.Process.Kill()
	state("offline")
	g.Command(t, nil, "deployment", "remove", "state")
	g.Command(t, nil, "connector", "remove", "box")
	if got := con.Doctor(t)["token"]; got != "failed" {
		t.Errorf("the doctor finds the token of a removed connector %q", got)
	}
}
