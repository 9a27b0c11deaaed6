package tests

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

// Two processes have the token of one connector: the newer one replaces the other, and they do not replace
// each other for ever.
func testConnectorStartedTwice(t *testing.T, g *harness.Gateway) {
	r := rigOf(t, g)
	r.serve(t, "m", upstream.Echo)
	first := r.con.Process
	r.con.Launch(t)
	pause := regexp.MustCompile(`replaced.*` + retries.String())
	harness.Poll(t, limit, "a long pause of the replaced process", nilContext(func() error {
		for _, m := range pause.FindAllStringSubmatch(first.Log(), -1) {
			if d, err := time.ParseDuration(m[1]); err != nil || d > 8*time.Second {
				return err
			}
		}
		return errors.New("there is none")
	}))
	online := regexp.MustCompile(`"msg":"connector online".*"` + r.con.ID + `"`)
	if n := len(online.FindAllString(r.Gateway.Process.Log(), -1)); n < 2 || n > 6 {
		t.Errorf("the connector came online %d times", n)
	}
	served(t, r.Post(t, harness.Chat("m", "")), "a request")
	if !strings.Contains(first.Log(), "another connector runs with the same tunnel token; stop one of them") {
		t.Errorf("the replaced process does not say what to do:\n%s", first.Log())
	}
}

// exitFatal is the exit code of a connector that the gateway does not accept.
const exitFatal = 78

// A connector whose token the gateway does not accept prints that and exits.
func testRemovedConnector(t *testing.T, g *harness.Gateway) {
	c := g.NewConnector(t, "leaver", map[string]any{"upstream": "http://localhost:1"})
	g.Command(t, nil, "connector", "remove", "leaver")
	c.Launch(t)
	if code := c.Process.WaitExit(t, limit); code != exitFatal {
		t.Errorf("the connector ended with code %d", code)
	}
	if log := c.Process.Log(); !strings.Contains(log,
		"get a new token on the gateway's machine with `caddy gateway connector rotate NAME`") {
		t.Errorf("it does not say what to do:\n%s", log)
	}
}

// The gateway is not the one of the token: the connector prints that, and sends it no secret.
func TestConnectorOfAnotherGateway(t *testing.T) {
	t.Parallel()
	r := newRig(t, harness.Options{})
	r.con.Process.WaitLog(t, `"msg":"connected"`, limit)
	r.Gateway.Process.Kill()
	must(t, os.Remove(filepath.Join(r.Dir, "gateway.db")))
	r.Gateway.Restart(t) // with a new identity
	r.con.Process.WaitLog(t, "the gateway's identity does not match the pin in the tunnel token", limit)
	pauses := retries.FindAllStringSubmatch(r.con.Process.Log(), -1)
	if d, err := time.ParseDuration(pauses[len(pauses)-1][1]); err != nil || d < 10*time.Second {
		t.Errorf("it tries again after %v, %v", d, err)
	}
	if strings.Contains(r.Gateway.Process.Log(), `"msg":"connector online"`) {
		t.Error("the connector is online at a gateway that is not its own")
	}
	if !r.con.Process.Running() {
		t.Error("the connector has ended, although it was online before: the gateway's storage may come back")
	}
	r.con.Process.Kill()
	r.con.Launch(t)
	if code := r.con.Process.WaitExit(t, limit); code != exitFatal {
		t.Errorf("another process of the connector ended with code %d", code)
	}
}

// Configuration errors end the connector at once, with a text that names the
// field and the fix.
func testConnectorConfigurationErrors(t *testing.T, g *harness.Gateway) {
	for want, config := range map[string]map[string]any{
		"upstrem":  {"upstrem": "http://localhost:1"},
		"/v1":      {"upstreams": map[string]any{"a": map[string]any{"base_url": "http://localhost:1/v1/models"}}},
		"upstream": {},
		"nosuch": {
			"upstreams": map[string]any{"a": map[string]any{"base_url": "http://localhost:1"}},
			"routes":    []map[string]string{{"model": "*", "upstream": "nosuch"}},
		},
	} {
		c := g.NewConnector(t, strings.Trim(want, "/"), config)
		c.Launch(t)
		if code := c.Process.WaitExit(t, limit); code != 2 {
			t.Errorf("%v: exit code %d, want 2", config, code)
		}
		if log := c.Process.Log(); !strings.Contains(log, want) {
			t.Errorf("%s is not in the error: %s", want, log)
		}
	}
}
