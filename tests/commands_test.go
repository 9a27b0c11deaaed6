package tests

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

// The quick start with commands alone.
func TestCommands(t *testing.T) {
	t.Parallel()
	g := harness.Start(t, harness.Options{})
	up := upstream.Start(t)
	up.Handle("", upstream.Echo)

	var key struct {
		ID, Name, Scope, Key string
		CreatedAt            time.Time `json:"created_at"`
	}
	g.Command(t, &key, "key", "create", "--name", "laptop", "--scope", "org/*")
	g.Hide(key.Key)
	if !strings.HasPrefix(key.ID, "key_") || key.Name != "laptop" || key.Scope != "org/*" ||
		time.Since(key.CreatedAt) > limit {
		t.Errorf("key create printed %+v", key)
	}
	var created struct {
		ID, Name string
		Token    string `json:"tunnel_token"`
	}
	g.Command(t, &created, "connector", "create", "--name", "box")
	g.Hide(created.Token)
	config := g.Dir + "/connector.json"
	text := fmt.Sprintf(`{"tunnel_token":%q,"upstream":%q}`, created.Token, up.URL)
	must(t, os.WriteFile(config, []byte(text), 0o600))
	g.StartProcess(t, "connector", g.Rig.Command("connector", "run", "--config", config))
	g.Command(t, nil, "deployment", "set", "org/m", "--connector", "box", "--model", "m")
	var connectors []map[string]any
	harness.Poll(t, limit, "the connector being online", nilContext(func() error {
		g.Command(t, &connectors, "connector", "list")
		if len(connectors) != 1 || connectors[0]["state"] != "online" {
			return fmt.Errorf("connectors: %v", connectors)
		}
		return nil
	}))
	for _, name := range []string{"id", "name", "state", "transport", "remote", "version", "upstreams", "since"} {
		if connectors[0][name] == nil {
			t.Errorf("connector list has no %s: %v", name, connectors[0])
		}
	}
	served(t, g.Client(t, key.Key).Post(t, harness.Chat("org/m", "")), "a request")
	checkVersions(t, g, config, connectors[0]["version"])
	checkLists(t, g, key.ID, key.Key)
}

// checkVersions compares the versions that the two programs report, wherever they report them. Both are built
// from the same sources.
func checkVersions(t *testing.T, g *harness.Gateway, config string, listed any) {
	t.Helper()
	out, err := g.Rig.Command("connector", "--version").Output()
	must(t, err)
	state, err := g.Rig.Command("connector", "status", "--json", "--config", config).Output()
	must(t, err)
	lines := strings.Split(string(out), "\n")
	number, commit := strings.TrimPrefix(lines[0], "connector "), strings.TrimPrefix(lines[1], "commit ")
	var status struct{ Version, Commit, Caddy string }
	g.Command(t, &status, "status")
	// The two may have been built at different commits: what is newer than
	// its sources is not built again.
	if number == "" || listed != number {
		t.Errorf("the gateway lists version %v, the connector says %q", listed, number)
	}
	if !strings.Contains(string(state), fmt.Sprintf(`"gateway_version": %q`, status.Version)) {
		t.Errorf("the gateway's status says version %q, the connector heard: %s", status.Version, state)
	}
	if len(status.Commit) != len(commit) || status.Version == "" || status.Version == status.Caddy ||
		!strings.HasPrefix(status.Caddy, "v2.") {
		t.Errorf("the gateway's versions are %+v, the connector has commit %s", status, commit)
	}
}

// checkLists checks the output of the other commands, and revokes and removes records.
func checkLists(t *testing.T, g *harness.Gateway, keyID, key string) {
	t.Helper()
	var deployments, keys []map[string]any
	g.Command(t, &deployments, "deployment", "list")
	if len(deployments) != 1 || deployments[0]["name"] != "org/m" || deployments[0]["model"] != "m" {
		t.Errorf("deployment list printed %v", deployments)
	}
	var status map[string]any
	g.Command(t, &status, "status")
	for _, name := range []string{"listener", "connectors", "deployments", "counters"} {
		if status[name] == nil {
			t.Errorf("status has no %s: %v", name, status)
		}
	}
	g.Command(t, nil, "key", "revoke", keyID)
	g.Client(t, key).Post(t, harness.Chat("org/m", "")).ExpectError(t, 401, "invalid_request_error", "invalid_api_key")
	g.Command(t, &keys, "key", "list")
	if len(keys) != 1 || keys[0]["id"] != keyID || keys[0]["revoked_at"] == nil || keys[0]["last_used_at"] == nil {
		t.Errorf("key list printed %v", keys)
	}
	for _, args := range [][]string{{"key", "list"}, {"connector", "list"}, {"deployment", "list"}, {"status"}} {
		stdout, stderr, code := g.Run(t, args...)
		if code != 0 || stdout == "" || strings.Contains(stdout, key) || strings.HasPrefix(stdout, "[{") {
			t.Errorf("%v for people: code %d, %s%s", args, code, stdout, stderr)
		}
	}
	g.Command(t, nil, "deployment", "remove", "org/m")
	g.Command(t, nil, "connector", "remove", "box")
	g.Command(t, &deployments, "deployment", "list")
	if len(deployments) != 0 {
		t.Errorf("deployments after the removal: %v", deployments)
	}
}

// nilContext adapts a probe that needs no context.
func nilContext(probe func() error) func(context.Context) error {
	return func(context.Context) error { return probe() }
}

// Mistakes are answered with the exit code 1 and a text that says what to do.
func TestCommandErrors(t *testing.T) {
	t.Parallel()
	g := harness.Start(t, harness.Options{})
	g.NewConnector(t, "box", map[string]any{})
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"key", "create"}, "name"},
		{[]string{"key", "create", "--name", "x", "--scope", "a b,,"}, "scope"},
		{[]string{"key", "revoke", "key_nosuch"}, "key_nosuch"},
		{[]string{"connector", "remove", "nosuch"}, "nosuch"},
		{[]string{"deployment", "set", "m", "--connector", "nosuch"}, "nosuch"},
		{[]string{"deployment", "set", "not a name", "--connector", "box"}, "name"},
		{[]string{"deployment", "remove", "nosuch"}, "nosuch"},
	} {
		stdout, stderr, code := g.Run(t, c.args...)
		if code == 0 || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: code %d, stdout %q, stderr %q; want %q in it", c.args, code, stdout, stderr, c.want)
		}
		if strings.Contains(stderr, "goroutine ") {
			t.Errorf("%v panicked: %s", c.args, stderr)
		}
	}
	for _, args := range [][]string{{"gateway", "key", "creat"}, {"gateway", "nosuch"}} {
		out, err := g.Caddy(args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), args[len(args)-1]) {
			t.Errorf("%v: %v, %s", args, err, out)
		}
	}
	g.Process.Kill()
	if _, stderr, code := g.Run(t, "status"); code == 0 || !strings.Contains(stderr, string(g.Admin)) {
		t.Errorf("without a gateway: code %d, %s", code, stderr)
	}
}
