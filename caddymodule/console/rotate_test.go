package console

import (
	"html"
	"net/http"
	"strings"
	"testing"

	"github.com/postern-dev/postern/connector/link"
)

// The page asks first, and then shows the new token once.
func TestConnectorRotate(t *testing.T) {
	g := newGateway(t)
	con := g.connector("gpu-box")
	path := "/console/connectors/" + con.ID + "/rotate"
	has(t, g.page("/console/connectors/show?id="+con.ID), `href="`+path+`"`)
	has(t, mainOf(g.page(path)), `<form method="post" action="`+path+`">`, "Rotate the token", `name="grace"`)
	if c, _ := g.store.Connector(con.ID); c.RotatedAt != nil {
		t.Fatal("asking began it")
	}
	var tokens []link.Token
	for _, grace := range []string{"1h", "0s"} {
		until := map[string]string{"1h": "The old token expires at", "0s": "The old token has expired."}[grace]
		w := g.post(path, "grace", grace)
		if w.Code != http.StatusOK || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("status %d, Cache-Control %q", w.Code, w.Header().Get("Cache-Control"))
		}
		has(t, w.Body.String(), "Copy this token now", "connector reload", until)
		_, text, _ := strings.Cut(w.Body.String(), `id="token-new">`)
		text, _, _ = strings.Cut(text, "<")
		token, err := link.ParseToken(html.UnescapeString(text))
		if err != nil || token.Connector != con.ID {
			t.Fatalf("the page shows no token: %v, %v", token, err)
		}
		tokens = append(tokens, token)
		for i, token := range tokens {
			if _, err := g.store.AuthenticateConnector(con.ID, token.Secret); (err == nil) != (i == len(tokens)-1) {
				t.Errorf("with a grace of %s, token %d: %v", grace, i, err)
			}
		}
		shown := mainOf(g.page("/console/connectors/show?id=" + con.ID))
		if has(t, shown, "Token rotated"); strings.Contains(shown, "the old one expires at") != (grace == "1h") {
			t.Errorf("with a grace of %s, the connector's page is %s", grace, shown)
		}
	}
	lacks(t, g.page(path), "ptt_")
	has(t, mainOf(g.page(path)), "Last rotated")
	if w := g.post(path, "grace", "-1h"); w.Code == http.StatusOK || strings.Contains(w.Body.String(), "ptt_") {
		t.Errorf("with a negative grace: status %d", w.Code)
	}
	g.refused(g.get("/console/connectors/con_gone/rotate"), http.StatusNotFound, "")
	g.refused(g.post("/console/connectors/con_gone/rotate"), http.StatusNotFound, "")
}
