package cluster

import (
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

// TestMove: a gateway moves its data to etcd and back without losing any.
func TestMove(t *testing.T) {
	t.Parallel()
	etcd := start(t, 1)
	g := &gateway{Gateway: harness.Start(t, harness.Options{}), name: "a", up: upstream.Start(t)}
	g.up.Handle("", upstream.Echo)
	con := g.Connector(t, "box", g.up.URL)
	g.Deploy(t, "m-a", "box", "", "m")
	_, key := g.Key(t, "key", "*")
	g.await(t, g.Client(t, key), http.StatusOK, "the model")

	first := filepath.Join(g.Dir, "gateway.db")
	g.end(t)
	g.Configure(t, inEtcd("a", etcd.urls()...))
	g.offline(t, 0, "The database is restored.", "restore", first, "--yes")
	g.offline(t, 1, "the store already has records", "restore", first, "--yes")
	g.Restart(t)
	con.WaitState(t, "online", limit)
	g.await(t, g.Client(t, key), http.StatusOK, "the key in etcd")
	moved := filepath.Join(g.Dir, "moved.db")
	g.offline(t, 1, `the gateway "a" is using the store`, "backup", moved, "--offline")
	g.end(t)
	g.offline(t, 0, "is complete", "backup", moved, "--offline")

	g.Configure(t, harness.Options{})
	g.offline(t, 2, "not in etcd", "backup", moved, "--offline", "--force")
	g.offline(t, 0, "is kept as "+first, "restore", moved, "--yes")
	before, after := items(t, only(t, first+".before-restore-*")), items(t, first)
	g.Restart(t)
	con.WaitState(t, "online", limit)
	g.await(t, g.Client(t, key), http.StatusOK, "the key in the file")
	for path, value := range before {
		if after[path] != value {
			t.Errorf("%s was %q and is %q", path, value, after[path])
		}
	}
	for path := range after {
		if _, ok := before[path]; !ok && path != "secrets/peer" { // shared by edges, and harmless here
			t.Errorf("%s came with the move", path)
		}
	}
}

// end stops the gateway.
func (g *gateway) end(t *testing.T) {
	t.Helper()
	g.Process.Signal(t, syscall.SIGTERM)
	if code := g.Process.WaitExit(t, limit); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// offline runs a command with the gateway's configuration, and checks the output.
func (g *gateway) offline(t *testing.T, code int, want string, args ...string) {
	t.Helper()
	cmd := g.Caddy(append(append([]string{"gateway"}, args...), "--config", g.Caddyfile, "--adapter", "caddyfile")...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != code || !strings.Contains(string(out), want) {
		t.Fatalf("%q: %v, %s", args, err, out)
	}
}

// only returns the only file that matches a pattern.
func only(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatalf("files like %s: %q, %v", pattern, found, err)
	}
	return found[0]
}

// items returns the records of a database that a running gateway does not change.
func items(t *testing.T, path string) map[string]string {
	t.Helper()
	kv, err := store.OpenBolt(path, store.BoltOptions{})
	must(t, err)
	defer kv.Close()
	all := map[string]string{}
	_, err = kv.Each(t.Context(), store.Span{}, func(item store.Item) error {
		switch dir, _, _ := strings.Cut(item.Key, "/"); dir {
		case "x", "last_used", "connectors_seen", "calibrations", "links", "marks":
		default:
			all[item.Key] = string(item.Value)
		}
		return nil
	})
	must(t, err)
	return all
}
