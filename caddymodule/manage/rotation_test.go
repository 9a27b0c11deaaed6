package manage_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/link"
)

func (g *gateway) token(text string) link.Token {
	g.t.Helper()
	token, err := link.ParseToken(text)
	must(g.t, err)
	return token
}

// letsIn checks whether secrets of a connector are valid.
func (g *gateway) letsIn(id string, secrets map[string]bool) {
	g.t.Helper()
	for secret, want := range secrets {
		if _, err := g.store.AuthenticateConnector(id, secret); (err == nil) != want {
			g.t.Errorf("a secret is let in: %v, want %v", err == nil, want)
		}
	}
}

// Without grace, the new token alone is valid. It is shown once.
func TestRotateConnector(t *testing.T) {
	g := newGateway(t)
	old := g.token(want[manage.CreatedConnector](g, 201, "POST", "/connectors", `{"name":"attic"}`).TunnelToken)
	answer := want[map[string]any](g, 200, "POST", "/connectors/attic/rotate", `{}`)
	wantFields(t, answer, "id", "name", "tunnel_token", "previous_until")
	text := answer["tunnel_token"].(string)
	token := g.token(text)
	g.letsIn(old.Connector, map[string]bool{old.Secret: false, token.Secret: true})
	secret := token.Secret
	if token.Secret = old.Secret; token != old || secret == old.Secret {
		t.Errorf("the token leads to %v, the old one to %v", token, old)
	}
	listed := want[[]map[string]any](g, 200, "GET", "/connectors", "")[0]
	if listed["rotated_at"] == nil || listed["previous_until"] == nil {
		t.Errorf("listed %v", listed)
	}
	for _, text := range []string{g.log.String(), g.do("GET", "/connectors", "").Body.String()} {
		if strings.Contains(text, secret) || strings.Contains(text, "ptt_") {
			t.Errorf("a secret is returned again: %s", text)
		}
	}
	if !strings.Contains(g.log.String(), `"operation":"connector.rotate"`) {
		t.Error("the log has no audit line")
	}
	g.endpoint.Public = ""
	g.refused(operator, 409, "POST", "/connectors/attic/rotate", `{}`, "public gw.example.com:7443")
	g.letsIn(old.Connector, map[string]bool{secret: true})
}

// With grace, both tokens are valid until its end.
func TestRotateConnectorWithGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t)
		old := g.token(want[manage.CreatedConnector](g, 201, "POST", "/connectors", `{"name":"attic"}`).TunnelToken)
		answer := want[manage.CreatedConnector](g, 200, "POST", "/connectors/attic/rotate", `{"grace":"1h"}`)
		next := g.token(answer.TunnelToken)
		if answer.PreviousUntil == nil || time.Until(*answer.PreviousUntil).Round(time.Second) != time.Hour {
			t.Errorf("the old token is valid until %v", answer.PreviousUntil)
		}
		g.letsIn(old.Connector, map[string]bool{old.Secret: true, next.Secret: true})
		time.Sleep(time.Hour)
		g.letsIn(old.Connector, map[string]bool{old.Secret: false, next.Secret: true})
	})
}

// The answer has the only copy of the new token, even if an edge has not confirmed that the old one has ended.
func TestRotateConnectorUnconfirmed(t *testing.T) {
	g, edge, _ := newEdge(t)
	old := g.token(want[manage.CreatedConnector](g, 201, "POST", "/connectors", `{"name":"attic"}`).TunnelToken)
	edge.Leave(store.PendingEdge{Edge: "c"})
	answer := want[manage.CreatedConnector](g, 200, "POST", "/connectors/attic/rotate", `{}`)
	g.letsIn(old.Connector, map[string]bool{old.Secret: false, g.token(answer.TunnelToken).Secret: true})
	if answer.Unconfirmed == nil || len(answer.Unconfirmed.Pending) != 1 {
		t.Errorf("answer %+v", answer)
	}
}
