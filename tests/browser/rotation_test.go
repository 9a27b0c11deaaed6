package browser

import (
	"net/http"
	"strings"
	"testing"
)

// A connector gets a new token on its page, with two clicks. The old one works for the chosen time.
func testRotatingAToken(t *testing.T, r *rig) {
	p := r.newUser("rotating", "rob")
	r.paired(p, "rotating")
	key := r.key(p, "laptop", "*")

	p.Open("/console/connectors")
	p.Click(`td[data-label="Name"] a`)
	p.Sees("Last failed requests")
	p.Look("connector")
	p.Click(`a[href$="/rotate"]`)
	p.Sees("New token for ")
	p.Look("connector-rotate")
	p.Press("Rotate the token")
	p.Sees("Copy this token now")
	token := strings.TrimSpace(p.Text("#token-new"))
	if !strings.HasPrefix(token, "ptt_") {
		t.Errorf("the page shows %d characters instead of a token", len(token))
	}
	r.Hide(token)
	p.Look("connector-rotated")
	r.expectChat(key, "scripted", http.StatusOK)
	p.Open("/console/connectors")
	p.Click(`td[data-label="Name"] a`)
	p.Sees("the old one expires at")
}
