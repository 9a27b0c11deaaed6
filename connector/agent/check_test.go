package agent

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/connector/link"
)

// A check of the token does not replace the tunnel.
func TestCheckToken(t *testing.T) {
	g := startGateway(t)
	c := g.config(map[string]string{"m": "http://127.0.0.1:1"})
	if _, err := CheckToken(t.Context(), c); err != nil || g.count() != 0 {
		t.Errorf("%v, %d hellos", err, g.count())
	}
	g.set(func() { g.deny = &link.Deny{Code: link.DenyCredentials, Message: "unknown"} })
	if _, err := CheckToken(t.Context(), c); err == nil || !strings.Contains(err.Error(), "unknown") {
		t.Errorf("a refusal: %v", err)
	}
}
