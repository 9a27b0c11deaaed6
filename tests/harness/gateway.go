package harness

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/proc"
)

// ready is how long a process may take until it serves, on a busy machine.
const ready = 30 * time.Second

// Options say how a gateway is configured.
type Options struct {
	Site   string // lines within the site's model_gateway block
	Global string // lines within the global options
	HTTPS  bool   // serve HTTPS, with a certificate that Caddy makes, and HTTP/2

	Console bool // serve the console; the site's host is localhost then, too

	// Cgroup is the folder of a cgroup for the process. Default: the test's own.
	Cgroup string

	// Address is where clients and connectors reach the gateway. Default: the
	// loopback's.
	Address string
}

// A Gateway is a caddy process with its folder and addresses. The addresses
// and the folder stay the same over a restart.
type Gateway struct {
	Dir        string
	URL        string // http://127.0.0.1:port of the public API
	Admin      string // host:port of Caddy's admin endpoint
	UDP        string // host:port that connectors dial
	Caddyfile  string // path
	Process    *proc.Process
	Management *http.Client

	cgroup  string
	mu      sync.Mutex
	secrets []string // what no log may hold
	logs    []*proc.Process
}

// Start starts a gateway and waits until it serves.
func Start(t testing.TB, o Options) *Gateway {
	t.Helper()
	g := &Gateway{
		Dir: t.TempDir(), URL: "http://" + proc.FreeAddr(t), Admin: proc.FreeAddr(t), UDP: proc.FreeAddr(t),
		Management: &http.Client{Timeout: 10 * time.Second}, cgroup: o.Cgroup, secrets: []string{Prompt},
	}
	if o.Address != "" {
		g.URL = strings.Replace(g.URL, "127.0.0.1", o.Address, 1)
		g.UDP = strings.Replace(g.UDP, "127.0.0.1", o.Address, 1)
	} else if o.HTTPS || o.Console {
		g.URL = strings.Replace(g.URL, "127.0.0.1", "localhost", 1)
	}
	if o.HTTPS {
		g.URL = strings.Replace(g.URL, "http://", "https://", 1)
	}
	g.Caddyfile = filepath.Join(g.Dir, "Caddyfile")
	g.Configure(t, o)
	t.Cleanup(func() { g.checkLogs(t) })
	g.Restart(t)
	return g
}

// Configure writes the Caddyfile; Reload or Restart puts it into effect.
func (g *Gateway) Configure(t testing.TB, o Options) {
	t.Helper()
	https, certificate := "off", ""
	if o.HTTPS {
		https, certificate = "disable_redirects", "tls internal"
	}
	console := ""
	if o.Console {
		console = "model_console"
	}
	text := fmt.Sprintf(`{
	admin %s
	persist_config off
	auto_https %s
	skip_install_trust
	servers {
		protocols h1 h2
	}
	log {
		level DEBUG
	}
	metrics
	grace_period 20s
	%s
	model_gateway {
		listen %s
		public %s
		storage bolt %s
	}
}
%s {
	bind %s
	%s
	log
	model_gateway {
		%s
	}
	%s
}
`, g.Admin, https, o.Global, g.UDP, g.UDP, filepath.Join(g.Dir, "gateway.db"), g.URL, cmp.Or(o.Address, "127.0.0.1"), certificate, o.Site, console)
	if err := os.WriteFile(g.Caddyfile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Caddy returns a command of the gateway's own binary, with its home in the
// gateway's folder.
func (g *Gateway) Caddy(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(binary(t, "caddy"), args...)
	cmd.Dir = g.Dir
	cmd.Env = g.environment()
	return cmd
}

func (g *Gateway) environment() []string {
	return append(os.Environ(), "HOME="+g.Dir, "XDG_DATA_HOME="+filepath.Join(g.Dir, "data"),
		"XDG_CONFIG_HOME="+filepath.Join(g.Dir, "config"), "NO_COLOR=1")
}

// Restart starts the gateway again, which must have ended, and waits until it
// serves.
func (g *Gateway) Restart(t testing.TB) {
	t.Helper()
	cmd := g.Caddy(t, "run", "--config", g.Caddyfile, "--adapter", "caddyfile")
	if g.cgroup != "" {
		cmd.Args = append([]string{"sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, g.cgroup}, cmd.Args...)
		cmd.Path = "/bin/sh"
	}
	g.Process = proc.Start(t, g.Dir, "caddy", cmd)
	g.watch(g.Process)
	proc.Poll(t, ready, "starting the gateway", func(ctx context.Context) error {
		if !g.Process.Running() {
			t.Fatal("caddy has ended while starting")
		}
		if _, err := g.get(ctx, "/model_gateway/status"); err != nil {
			return err
		}
		return g.listens()
	})
}

// listens returns nil once the public API takes connections; with HTTPS, once
// it has its certificate.
func (g *Gateway) listens() error {
	if addr, ok := strings.CutPrefix(g.URL, "https://"); ok {
		conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return err
		}
		return conn.Close()
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.URL, "http://"))
	if err != nil {
		return err
	}
	return conn.Close()
}

// Reload applies the Caddyfile as `caddy reload` does.
func (g *Gateway) Reload(t testing.TB) {
	t.Helper()
	out, err := g.Caddy(t, "reload", "--config", g.Caddyfile, "--adapter", "caddyfile", "--address", g.Admin, "--force").CombinedOutput()
	if err != nil {
		t.Fatalf("caddy reload: %v\n%s", err, out)
	}
}

// Hide adds a text that no log may hold.
func (g *Gateway) Hide(secrets ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.secrets = append(g.secrets, secrets...)
}

func (g *Gateway) watch(p *proc.Process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.logs = append(g.logs, p)
}

// checkLogs fails the test if a log holds a secret.
func (g *Gateway) checkLogs(t testing.TB) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.logs {
		log := p.Log()
		for i, secret := range g.secrets {
			if at := strings.Index(log, secret); at >= 0 {
				t.Errorf("the log of %s holds secret number %d: …%s<secret>", p.Name, i, log[max(0, at-200):at])
			}
		}
	}
}

// Manage sends one request to the management API on the admin endpoint and
// decodes the answer into what is not nil.
func (g *Gateway) Manage(t testing.TB, method, path string, body, into any) {
	t.Helper()
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		r = bytes.NewReader(b)
	}
	req, err := http.NewRequest(method, "http://"+g.Admin+"/model_gateway"+path, r)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	answer, err := send(g.Management, req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	if into != nil {
		if err := json.Unmarshal(answer, into); err != nil {
			t.Fatalf("%s %s: decoding %s: %v", method, path, answer, err)
		}
	}
}

// get reads a path of the admin endpoint.
func (g *Gateway) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.Admin+path, nil)
	if err != nil {
		return nil, err
	}
	return send(g.Management, req)
}

// Metrics returns what Caddy's /metrics shows.
func (g *Gateway) Metrics(t testing.TB) string {
	t.Helper()
	b, err := g.get(t.Context(), "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func send(c *http.Client, req *http.Request) ([]byte, error) {
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		return nil, fmt.Errorf("%s: %s", resp.Status, b)
	}
	return b, nil
}

// Key creates a key and returns its id and the key itself.
func (g *Gateway) Key(t testing.TB, name, scope string) (id, key string) {
	t.Helper()
	var k struct{ ID, Key string }
	g.Manage(t, http.MethodPost, "/keys", map[string]string{"name": name, "scope": scope}, &k)
	g.Hide(k.Key)
	return k.ID, k.Key
}

// Revoke revokes a key; it returns after the revocation is in effect.
func (g *Gateway) Revoke(t testing.TB, id string) {
	t.Helper()
	g.Manage(t, http.MethodDelete, "/keys/"+id, nil, nil)
}

// Deploy registers a public model name. upstream and model may be "".
func (g *Gateway) Deploy(t testing.TB, name, connector, upstream, model string) {
	t.Helper()
	body := map[string]string{"connector": connector, "upstream": upstream, "model": model}
	g.Manage(t, http.MethodPut, "/deployments/"+url.PathEscape(name), body, nil)
}

// Command runs `caddy gateway ARGS --json` against this gateway and decodes
// what it prints into what is not nil. It fails the test if the command does.
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

// Run runs `caddy gateway ARGS` against this gateway.
func (g *Gateway) Run(t testing.TB, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := g.Caddy(t, append(append([]string{"gateway"}, args...), "--address", g.Admin)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatalf("running %s: %v", cmd, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}
