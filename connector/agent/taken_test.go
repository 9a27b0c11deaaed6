package agent

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// A check of the token does not replace the tunnel.
func TestCheckToken(t *testing.T) {
	g := startGateway(t)
	c := g.config(map[string]string{"m": "http://127.0.0.1:1"})
	if err := CheckToken(t.Context(), c, "0.9.0"); err != nil || g.count() != 0 {
		t.Errorf("%v, %d hellos", err, g.count())
	}
	g.set(func() { g.deny = &link.Deny{Code: link.DenyCredentials, Message: "unknown"} })
	if err := CheckToken(t.Context(), c, "0.9.0"); err == nil || !strings.Contains(err.Error(), "unknown") {
		t.Errorf("a refusal: %v", err)
	}
}

// With UntilReplaced, an agent ends when another process has taken its tunnel over.
func TestUntilReplaced(t *testing.T) {
	g := startGateway(t)
	a := startAgent(t, g, "http://127.0.0.1:1", func(a *instance) { a.UntilReplaced = true })
	wait.Until(t, "the tunnel", func() bool { return a.Status().State == StateOnline })
	g.session().close(link.CloseReplaced)
	if err := wait.For(t, a.result, "the agent's end"); err != nil || g.count() != 1 {
		t.Errorf("Run returned %v after %d hellos", err, g.count())
	}
}
