package manage_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/link"
)

// answering performs a connector's part of a rotation in the store.
func (g *gateway) answering(id string, do func(ctx context.Context, number int64) error) {
	g.t.Helper()
	done := make(chan struct{})
	begun := make(chan struct{}, 10)
	stop := g.store.Subscribe(func(c store.Change) {
		if now, ok := g.store.Connector(c.ID); ok && c.ID == id && now.Rotation != nil && now.Rotation.Problem == "" {
			begun <- struct{}{}
		}
	})
	ctx, cancel := context.WithCancel(g.t.Context())
	go func() {
		defer close(done)
		for offered := false; ; {
			select {
			case <-ctx.Done():
				return
			case <-begun:
				if offered { // the offer itself is reported, too
					offered = false
					continue
				}
				offered = true
				offer, err := g.store.OfferSecret(ctx, id)
				if err == nil {
					err = do(ctx, offer.Number)
				}
				if err != nil && ctx.Err() == nil {
					g.t.Error(err)
				}
			}
		}
	}()
	g.t.Cleanup(func() {
		stop()
		cancel()
		<-done
	})
}

func TestRotateConnector(t *testing.T) {
	g := newGateway(t)
	home := g.connector("default", "home", map[string]http.Handler{"ollama": models("m")})
	id := home.info.Connector
	g.answering(id, func(ctx context.Context, number int64) error {
		_, _, err := g.store.FinishRotation(ctx, id, number)
		return err
	})
	got := want[map[string]any](g, 200, "POST", "/connectors/home/rotate", `{}`)
	wantFields(t, got, "id", "name", "state")
	if got["id"] != id || got["name"] != "home" || got["state"] != "rotated" {
		t.Errorf("answer %v", got)
	}
	listed := want[[]map[string]any](g, 200, "GET", "/connectors", "")[0]
	if listed["rotated_at"] == nil || listed["rotation"] != nil {
		t.Errorf("listed %v", listed)
	}
	if log := g.log.String(); !strings.Contains(log, `"operation":"connector.rotate"`) {
		t.Errorf("the log has no audit line: %s", log)
	}
}

func TestRotateConnectorThatCannot(t *testing.T) {
	g := newGateway(t)
	home := g.connector("default", "home", map[string]http.Handler{"ollama": models("m")})
	id := home.info.Connector
	g.answering(id, func(ctx context.Context, _ int64) error { return g.store.FailRotation(ctx, id, "it is read-only") })
	got := want[map[string]any](g, 200, "POST", "/connectors/"+id+"/rotate", `{"show":false}`)
	wantFields(t, got, "id", "name", "state", "since", "problem")
	if got["state"] != "failed" || got["problem"] != "it is read-only" {
		t.Errorf("answer %v", got)
	}
	rotation := want[[]map[string]any](g, 200, "GET", "/connectors", "")[0]["rotation"].(map[string]any)
	wantFields(t, rotation, "since", "problem")
}

// RotateConnector does not wait for an offline connector, and for a silent one only
// until the request ends.
func TestRotateConnectorThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t)
		old := g.created("attic")
		got := want[map[string]any](g, 200, "POST", "/connectors/attic/rotate", `{}`)
		wantFields(t, got, "id", "name", "state", "since")
		if got["state"] != "waiting" {
			t.Errorf("answer %v", got)
		}
		if _, err := g.store.AuthenticateConnector(old.Connector, old.Secret); err != nil {
			t.Errorf("the old token is invalid: %v", err)
		}
		g.connector("default", "mute", nil)
		ctx, cancel := context.WithTimeout(asOperator(t.Context()), time.Second)
		defer cancel()
		begun := time.Now()
		mute, err := g.service.RotateConnector(ctx, manage.RotateConnector{Connector: "mute"})
		if took := time.Since(begun); err != nil || mute.State != manage.RotationWaits || mute.Since == nil ||
			took != time.Second {
			t.Errorf("answer %+v, %v after %v", mute, err, took)
		}
	})
}

func (g *gateway) created(name string) link.Token {
	g.t.Helper()
	return g.token(want[map[string]any](g, 201, "POST", "/connectors", `{"name":"`+name+`"}`))
}

func (g *gateway) token(answer map[string]any) link.Token {
	g.t.Helper()
	text, _ := answer["tunnel_token"].(string)
	token, err := link.ParseToken(text)
	if err != nil {
		g.t.Fatal(err)
	}
	return token
}

func TestShowToken(t *testing.T) {
	g := newGateway(t)
	old := g.created("attic")
	lost := g.token(want[map[string]any](g, 200, "POST", "/connectors/attic/rotate", `{"show":true}`))
	answer := want[map[string]any](g, 200, "POST", "/connectors/attic/rotate", `{"show":true}`)
	wantFields(t, answer, "id", "name", "state", "since", "tunnel_token")
	token := g.token(answer)
	if token.Secret == old.Secret || token.Secret == lost.Secret || token.Number != 2 || answer["state"] != "by_hand" {
		t.Errorf("answer %v", answer["state"])
	}
	if token.Secret, token.Number = old.Secret, 0; token != old {
		t.Errorf("the token leads to %v, the old one to %v", token, old)
	}
	token = g.token(answer)
	for secret, in := range map[string]bool{old.Secret: true, lost.Secret: false, token.Secret: true} {
		if _, err := g.store.AuthenticateConnector(old.Connector, secret); (err == nil) != in {
			t.Errorf("a secret is let in: %v, want %v", err == nil, in)
		}
	}
	for _, text := range []string{g.log.String(), g.do("GET", "/connectors", "").Body.String()} {
		if strings.Contains(text, token.Secret) || strings.Contains(text, lost.Secret) || strings.Contains(text, "ptt_") {
			t.Errorf("a secret is returned again: %s", text)
		}
	}
	g.endpoint.Public = ""
	if w := g.do("POST", "/connectors/attic/rotate", `{"show":true}`); w.Code != 409 ||
		!strings.Contains(w.Body.String(), "public gw.example.com:7443") {
		t.Errorf("without an address: %d %s", w.Code, w.Body)
	}
}
