package browser

import (
	"net/http"
	"os"
	"strings"
	"testing"
)

// A connector gets a new token on its page, with two clicks. If it cannot write its configuration, the page shows the
// reason and the token to copy.
func testRotatingAToken(t *testing.T, r *rig) {
	p := r.newUser("rotating", "rob")
	r.paired(p, "rotating")
	key := r.key(p, "laptop", "*")
	config := r.PairedConfig("rotating")
	before := fileText(t, config)

	p.Open("/console/connectors")
	p.Click(`td[data-label="Name"] a`)
	p.Sees("Last failed requests")
	p.Look("connector")
	p.Click(`a[href$="/rotate"]`)
	p.Sees("New token for ")
	p.Look("connector-rotate")
	p.Press("Rotate the token")
	p.Sees("has a new token")
	if fileText(t, config) == before {
		t.Error("the configuration has the old token")
	}
	r.expectChat(key, "scripted", http.StatusOK)

	if err := os.Chmod(config, 0o400); err != nil {
		t.Fatal(err)
	}
	p.Click(`td[data-label="Name"] a`)
	p.Click(`a[href$="/rotate"]`)
	p.Press("Rotate the token")
	p.Sees("is marked as read-only")
	p.Look("connector-rotate-failed")
	p.Open("/console/connectors")
	p.Sees("token not rotated")
	p.Look("connectors-rotating")
	p.Click(`td[data-label="State"] a`)
	p.Press("Show a token to copy")
	p.Sees("Copy this token now")
	token := strings.TrimSpace(p.Text("#token-new"))
	if !strings.HasPrefix(token, "ptt_") {
		t.Errorf("the page shows %d characters instead of a token", len(token))
	}
	r.Hide(token)
	p.Look("connector-rotated")
	p.Open("/console/connectors")
	p.Sees("token pending since")
	p.Look("connectors-by-hand")
	r.expectChat(key, "scripted", http.StatusOK)
}

func fileText(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
