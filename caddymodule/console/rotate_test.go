package console

import (
	"context"
	"html"
	"net/http"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/link"
)

func TestConnectorRotate(t *testing.T) {
	g := newGateway(t)
	con := g.connector("gpu-box")
	path := "/console/connectors/" + con.ID + "/rotate"
	has(t, g.page("/console/connectors/show?id="+con.ID), `href="`+path+`"`)
	page := mainOf(g.page(path))
	has(t, page, `<form method="post" action="`+path+`">`, "Rotate the token", "It is offline now", `name="show"`)
	if c, _ := g.store.Connector(con.ID); c.Rotation != nil {
		t.Fatal("asking began it")
	}

	g.moved(g.post(path), "/console/connectors")
	page = g.page("/console/connectors")
	has(t, page, "gpu-box has not taken its new token yet", "token pending since")
	has(t, mainOf(g.page(path)), "gets the new token when it connects", "Try again")

	if err := g.store.FailRotation(t.Context(), con.ID, "it is <b>read-only"); err != nil {
		t.Fatal(err)
	}
	has(t, g.page("/console/connectors"), "token not rotated")
	has(t, mainOf(g.page(path)), "cannot write its configuration: it is &lt;b&gt;read-only", "Show a token to copy")

	w := g.post(path, "show", "yes")
	if w.Code != http.StatusOK || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("status %d, Cache-Control %q", w.Code, w.Header().Get("Cache-Control"))
	}
	has(t, w.Body.String(), "Copy this token now", "connector reload")
	_, text, _ := strings.Cut(w.Body.String(), `id="token-new">`)
	text, _, _ = strings.Cut(text, "<")
	token, err := link.ParseToken(html.UnescapeString(text))
	if err != nil || token.Connector != con.ID {
		t.Fatalf("the page shows no token: %v, %v", token, err)
	}
	if _, err := g.store.AuthenticateConnector(con.ID, token.Secret); err != nil {
		t.Error(err)
	}
	lacks(t, g.page(path), "ptt_")
	has(t, mainOf(g.page(path)), "has not connected with it yet", "Show a token to copy")

	if _, done, err := g.store.FinishRotation(t.Context(), con.ID, token.Number); !done || err != nil {
		t.Fatal(done, err)
	}
	has(t, mainOf(g.page(path)), "Last rotated", "Rotate the token")
	lacks(t, mainOf(g.page("/console/connectors")), "token pending", "not rotated")
	if w := g.get("/console/connectors/con_gone/rotate"); w.Code != http.StatusNotFound {
		t.Errorf("without a connector: status %d", w.Code)
	}
	if w := g.post("/console/connectors/con_gone/rotate"); w.Code != http.StatusNotFound {
		t.Errorf("without a connector: status %d", w.Code)
	}
}

// An online connector answers while the browser waits.
func TestConnectorRotateOnline(t *testing.T) {
	g := newGateway(t)
	con := g.connector("gpu-box")
	g.lines.connect(con, "m")
	path := "/console/connectors/" + con.ID + "/rotate"
	has(t, mainOf(g.page(path)), "The new token is sent through the open tunnel")
	var answer func(ctx context.Context, number int64) error
	done := make(chan error, 10)
	defer g.store.Subscribe(func(c store.Change) {
		if now, ok := g.store.Connector(con.ID); ok && c.Kind == store.KindConnector && now.Rotation != nil && answer != nil {
			do := answer
			answer = nil // once: its own change is reported, too
			go func() {
				offer, err := g.store.OfferSecret(t.Context(), con.ID)
				if err == nil {
					err = do(t.Context(), offer.Number)
				}
				done <- err
			}()
		}
	})()

	answer = func(ctx context.Context, _ int64) error { return g.store.FailRotation(ctx, con.ID, "read-only") }
	g.moved(g.post(path), path)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	has(t, g.page(path), "Nothing has changed: gpu-box keeps its old token.", "read-only", "Try again")

	answer = func(ctx context.Context, number int64) error {
		_, _, err := g.store.FinishRotation(ctx, con.ID, number)
		return err
	}
	g.moved(g.post(path), "/console/connectors")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	has(t, g.page("/console/connectors"), "gpu-box has a new token")
}

// Connectors of other accounts are not found.
func TestConnectorRotateElsewhere(t *testing.T) {
	g := newGateway(t)
	con := g.connector("gpu-box")
	if _, err := g.store.CreateAccount(t.Context(), "other"); err != nil {
		t.Fatal(err)
	}
	g.signInAs("other", "olga")
	path := "/console/connectors/" + con.ID + "/rotate"
	if w := g.get(path); w.Code != http.StatusNotFound {
		t.Errorf("asking: status %d", w.Code)
	}
	if w := g.post(path, "show", "yes"); w.Code != http.StatusNotFound || strings.Contains(w.Body.String(), "ptt_") {
		t.Errorf("doing: status %d", w.Code)
	}
}
