package tests

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

// rotateToken rotates the connector's token, and returns the new one. No log may contain it.
func (r *rig) rotateToken(t *testing.T, args ...string) (token string) {
	t.Helper()
	var answer struct {
		Token string `json:"tunnel_token"`
	}
	r.Command(t, &answer, append([]string{"connector", "rotate", r.con.Name}, args...)...)
	r.Hide(answer.Token)
	return answer.Token
}

// useToken writes a token into the connector's configuration, and reloads it.
func (r *rig) useToken(t *testing.T, token string) {
	t.Helper()
	config := strings.Replace(string(read(t, r.con.Config)), r.con.Token, token, 1)
	must(t, os.WriteFile(r.con.Config, []byte(config), 0o600))
	r.con.Token = token
	r.con.Process.Signal(t, syscall.SIGHUP)
	harness.Poll(t, limit, "an answer with the new token", nilContext(func() error {
		if a := r.Post(t, harness.Chat("m", "")); a.Status != http.StatusOK {
			return fmt.Errorf("status %d, %s", a.Status, a.Body)
		}
		return nil
	}))
}

// With grace, the connector keeps its tunnel, and changes to the new token by a reload. Without grace, the tunnel ends,
// and the connector says what to do; it need not be started again.
func testRotation(t *testing.T, g *harness.Gateway) {
	r := rigOf(t, g)
	r.serve(t, "m", upstream.Echo)
	since := tunnelSince(t, r)
	if out, _, code := r.Run(t, "connector", "rotate", r.con.Name); code != 2 || out != "" {
		t.Errorf("without a terminal and --yes: exit code %d, %s", code, out)
	}
	for _, grace := range []string{"-1h", "721h", "soon"} {
		if out, _, code := r.Run(t, "connector", "rotate", r.con.Name, "--grace", grace); code == 0 || out != "" {
			t.Errorf("with a grace of %s: exit code %d, %s", grace, code, out)
		}
	}
	next := r.rotateToken(t, "--grace", "1h")
	if a := r.Post(t, harness.Chat("m", "")); a.Status != http.StatusOK || tunnelSince(t, r) != since {
		t.Errorf("with grace: status %d, %s; the tunnel is open since %s, before %s",
			a.Status, a.Body, tunnelSince(t, r), since)
	}
	r.useToken(t, next)
	last := r.rotateToken(t, "--yes")
	r.con.Process.WaitLog(t, "the tunnel token has ended, as it was rotated", limit)
	r.useToken(t, last)
}

// With a new identity, tunnels end, and connectors say that they must be paired again. Pairing again
// keeps the name and the models of a connector, and so does a new token.
func TestIdentityRotation(t *testing.T) {
	t.Parallel()
	r := newRig(t, harness.Options{})
	r.serve(t, "m", upstream.Echo)
	var before, after struct {
		Pin        string
		Connectors int
	}
	r.Command(t, &before, "identity", "status")
	if out, _, code := r.Run(t, "identity", "rotate"); code != 2 || out != "" {
		t.Errorf("without a terminal and --yes: exit code %d, %s", code, out)
	}
	r.Command(t, &after, "identity", "rotate", "--yes")
	if after.Pin == before.Pin || after.Pin == "" || after.Connectors != 1 {
		t.Errorf("before %+v, after %+v", before, after)
	}
	r.con.Process.WaitLog(t, "the gateway has a new identity", limit)
	r.con.Process.WaitLog(t, "the gateway's identity does not match the pin in the tunnel token", limit)
	r.useToken(t, r.rotateToken(t, "--yes"))
	r.con.Process.Kill()

	started := startPairing(t, r.Gateway)
	r.Pair(t, "again", started.Code, r.up.URL)
	waitPairing(t, r.Gateway, started.ID, "pending")
	r.Command(t, nil, "pairing", "approve", started.ID, "--replace", r.con.Name, "--yes")
	harness.Poll(t, limit, "an answer of the paired connector", nilContext(func() error {
		if a := r.Post(t, harness.Chat("m", "")); a.Status != http.StatusOK {
			return fmt.Errorf("status %d, %s", a.Status, a.Body)
		}
		return nil
	}))
	hideToken(t, r.Gateway, "again")
}
