package harness

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/postern-dev/postern/tests/inprocess"
	"github.com/postern-dev/postern/tests/rig"
)

// Options say how a gateway is configured.
type Options struct {
	Site   string // lines within the site's model_gateway block
	Lines  string // further lines within the site
	Global string // lines within the global options
	App    string // lines within their model_gateway block
	// Storage is the kind of storage and what belongs to it. Default: bolt, in the rig.
	Storage string
	HTTPS   bool // serve HTTPS, with a certificate that Caddy makes, and HTTP/2

	Env []string // of the process, in addition to the test's

	Console bool // serve the console; the site's host is localhost then, too

	Sites string // further sites
	Plain bool   // no gateway, but a Caddy with these sites

	// Cgroup is the folder of a cgroup for the process. Default: the test's own.
	Cgroup string

	// Address is where clients and connectors reach the gateway. Default: the
	// loopback's.
	Address string
}

// forRig returns the options for the rig, with a log that tests can search.
func (o Options) forRig() rig.GatewayOptions {
	to := rig.GatewayOptions{
		Host: o.Address, HTTPS: o.HTTPS, Cgroup: o.Cgroup, App: o.App, Storage: o.Storage, Model: o.Site,
		Site:   "log\n" + o.Lines,
		Global: "log {\n level DEBUG\n}\nmetrics\n" + o.Global, Sites: o.Sites, Plain: o.Plain,
	}
	if o.Console {
		to.Site += "\nmodel_console"
	}
	if o.Address == "" && (o.HTTPS || o.Console) {
		to.Host = "localhost"
	}
	return to
}

// A StatusError is an answer of the admin endpoint with a status other than 2xx.
type StatusError = rig.StatusError

// A Gateway is a gateway of a test.
type Gateway struct {
	*rig.Gateway
	Process *Process

	inProcess *inprocess.Gateway // nil if it is a process
	mu        sync.Mutex
	clients   []*http.Transport // of Client
}

// Start starts a gateway and waits until it serves.
func Start(t testing.TB, o Options) *Gateway {
	t.Helper()
	var err error
	g := &Gateway{}
	if g.Gateway, err = newRig(t).Gateway(o.forRig()); err != nil {
		t.Fatal(err)
	}
	g.Process = keep(t, g.Gateway.Process)
	g.Process.Env = o.Env
	g.Restart(t)
	return g
}

// StartInProcess starts a gateway without Caddy, in the process of the test. It has
// no [Gateway.Process], and neither have its connectors.
func StartInProcess(t testing.TB, o inprocess.Options) *Gateway {
	t.Helper()
	r := newRig(t)
	log, err := r.Log("gateway")
	if err != nil {
		t.Fatal(err)
	}
	own, err := inprocess.Start(r.Dir, o, slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := own.Close(); err != nil {
			t.Error(err)
		}
	})
	return &Gateway{Gateway: &rig.Gateway{Rig: r, URL: own.URL, Admin: rig.Admin(own.Admin)}, inProcess: own}
}

// WithAccount returns the gateway for a test that shares it with others: in a new account, and with its own
// folder for connectors. The test must not stop, configure or reload it.
func (g *Gateway) WithAccount(t testing.TB, id string) *Gateway {
	t.Helper()
	r := newRig(t)
	t.Cleanup(func() { g.Hide(r.Secrets()...) }) // its log is searched when it ends
	own := *g.Gateway
	own.Rig, own.Account = r, id
	g.Manage(t, http.MethodPost, "/accounts", map[string]string{"id": id}, nil)
	return &Gateway{Gateway: &own, Process: g.Process}
}

// newRig returns a rig that is closed when the test ends.
func newRig(t testing.TB) *rig.Rig {
	t.Helper()
	r, err := rig.New(rig.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	r.Hide(Prompt)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// Configure writes the Caddyfile; Reload or Restart puts it into effect.
func (g *Gateway) Configure(t testing.TB, o Options) {
	t.Helper()
	if err := g.Gateway.Configure(o.forRig()); err != nil {
		t.Fatal(err)
	}
}

// Restart starts the gateway again, which must have ended, and waits until it
// serves.
func (g *Gateway) Restart(t testing.TB) {
	t.Helper()
	if err := g.Gateway.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Reload applies the Caddyfile as `caddy reload` does. Afterwards, Caddy may close idle connections at any
// time, and net/http does not repeat a POST on such a connection.
func (g *Gateway) Reload(t testing.TB) {
	t.Helper()
	if err := g.Gateway.Reload(); err != nil {
		t.Fatal(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.clients {
		c.CloseIdleConnections()
	}
}

// Manage sends one request to the management API on the admin endpoint and decodes the answer into the last
// argument, unless it is nil.
func (g *Gateway) Manage(t testing.TB, method, path string, body, into any) {
	t.Helper()
	if err := g.Gateway.Manage(t.Context(), method, path, body, into); err != nil {
		t.Fatal(err)
	}
}

// Metrics returns what Caddy's /metrics shows.
func (g *Gateway) Metrics(t testing.TB) string {
	t.Helper()
	page, err := g.Admin.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return page
}

// Key creates a key and returns its id and the key itself.
func (g *Gateway) Key(t testing.TB, name, scope string) (id, key string) {
	t.Helper()
	id, key, err := g.Gateway.Key(t.Context(), name, scope)
	if err != nil {
		t.Fatal(err)
	}
	return id, key
}

// Revoke revokes a key; it returns after the revocation is in effect.
func (g *Gateway) Revoke(t testing.TB, id string) {
	t.Helper()
	g.Manage(t, http.MethodDelete, "/keys/"+id, nil, nil)
}

// Deploy registers a public model name. upstream and model may be "".
func (g *Gateway) Deploy(t testing.TB, name, connector, upstream, model string) {
	t.Helper()
	if err := g.Gateway.Deploy(t.Context(), name,
		map[string]string{"connector": connector, "upstream": upstream, "model": model}); err != nil {
		t.Fatal(err)
	}
}

// Command runs `caddy gateway ARGS --json` against this gateway and decodes its output, unless into is nil. If
// the command fails, so does the test.
func (g *Gateway) Command(t testing.TB, into any, args ...string) {
	t.Helper()
	stdout, stderr, code := g.Run(t, append(args, "--json")...)
	if code != 0 {
		t.Fatalf("caddy gateway %s: exit code %d\n%s", strings.Join(args, " "), code, stderr)
	}
	if into != nil {
		if err := json.Unmarshal([]byte(stdout), into); err != nil {
			t.Fatalf("caddy gateway %s printed no JSON: %v\n%s", strings.Join(args, " "), err, stdout)
		}
	}
}

// Run runs `caddy gateway ARGS` against this gateway, in its account.
func (g *Gateway) Run(t testing.TB, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	if g.Account != "" {
		args = append(args, "--account", g.Account)
	}
	cmd := g.Caddy(append(append([]string{"gateway"}, args...), "--address", string(g.Admin))...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatalf("running %s: %v", cmd, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// Pair starts `connector pair` with a pairing code, for a device with a name of
// its own. It does not wait.
func (g *Gateway) Pair(t testing.TB, name, code, upstream string, args ...string) *Process {
	t.Helper()
	args = append([]string{"pair", g.URL, code, "--upstream", upstream, "--config", g.PairedConfig(name)}, args...)
	return g.StartProcess(t, "pair-"+name, g.Rig.Command("connector", args...))
}

// PairedConfig returns the path of the configuration of a paired device.
func (g *Gateway) PairedConfig(name string) string {
	return filepath.Join(g.Dir, "paired-"+name+".json")
}
