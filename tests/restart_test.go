package tests

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

// After kill -9 of the gateway, its connectors are back soon after it listens, and nothing
// that was acknowledged is lost.
func TestGatewayKilled(t *testing.T) {
	r := newRig(t, harness.Options{})
	second := r.Connector(t, "second", r.up.URL)
	r.serve(t, "m", upstream.Echo)
	id, key := r.Gateway.Key(t, "made last", "*")
	gone, revokedKey := r.Gateway.Key(t, "revoked last", "*")
	r.Revoke(t, gone)
	for round := range 2 {
		r.Gateway.Process.Kill()
		attempts := strings.Count(r.con.Process.Log(), "retry_in")
		harness.Poll(t, limit, "an attempt of the connector to connect", nilContext(func() error { // so that it pauses
			if n := strings.Count(r.con.Process.Log(), "retry_in") - attempts; n < round {
				return fmt.Errorf("there were %d", n)
			}
			return nil
		}))
		r.Gateway.Restart(t)
		for _, c := range []*harness.Connector{r.con, second} {
			c.WaitState(t, "online", limit)
			expectQuickRetries(t, c)
		}
		if a := r.Gateway.Client(t, key).Post(t, harness.Chat("m", "")); a.Status != 200 {
			t.Errorf("round %d: key %s: status %d, %s", round, id, a.Status, a.Body)
		}
		r.Gateway.Client(t, revokedKey).Post(t, harness.Chat("m", "")).ExpectError(t, 401, "invalid_request_error",
			"invalid_api_key")
	}
}

// retries matches the pauses of a connector between its attempts to connect.
var retries = regexp.MustCompile(`retry_in\W+([0-9.]+m?s)`)

// expectQuickRetries checks the pauses of a connector whose gateway was away: they have been
// at most half a second at first, and have at most doubled.
func expectQuickRetries(t *testing.T, c *harness.Connector) {
	t.Helper()
	for i, m := range retries.FindAllStringSubmatch(c.Process.Log(), -1) {
		if d, err := time.ParseDuration(m[1]); err != nil || d > 500*time.Millisecond<<min(i, 6) {
			t.Errorf("connector %s: pause %d is %s", c.Name, i, m[1])
		}
	}
}

// A client does not notice the restart: its request waits for the connector.
func TestRequestRightAfterGatewayRestart(t *testing.T) {
	t.Parallel()
	r := newRig(t, harness.Options{Site: "connect_wait 2m"})
	r.serve(t, "m", upstream.Echo)
	r.Gateway.Process.Kill()
	r.Gateway.Restart(t)
	served(t, r.Post(t, harness.Chat("m", "")), "a request")
}

// waitClosed waits until the gateway accepts no further connections.
func waitClosed(t *testing.T, g *harness.Gateway) {
	t.Helper()
	harness.Poll(t, limit, "the gateway refusing connections", nilContext(func() error {
		conn, err := net.Dial("tcp", strings.TrimPrefix(g.URL, "http://"))
		if err != nil {
			return nil
		}
		conn.Close()
		return errors.New("it accepts them")
	}))
}

// A UDP port that is taken is said to be, by its address.
func TestListenerAddressInUse(t *testing.T) {
	t.Parallel()
	g := harness.Start(t, harness.Options{})
	p, err := net.ListenPacket("udp", g.UDP)
	if err == nil {
		p.Close()
		t.Fatal("the gateway does not listen on its UDP port")
	}
	g.Process.Kill()
	if p, err = net.ListenPacket("udp", g.UDP); err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	second := g.StartProcess(t, "caddy-second", g.Caddy("run", "--config", g.Caddyfile))
	if code := second.WaitExit(t, limit); code == 0 {
		t.Error("caddy ended with code 0")
	}
	if log := second.Log(); !strings.Contains(log, g.UDP) || !strings.Contains(log, "address already in use") {
		t.Errorf("the error does not name the address:\n%s", log)
	}
}

// `caddy validate` binds no port and takes no lock, with and without a running gateway.
func TestValidateTouchesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, harness.Options{})
	r.serve(t, "m", upstream.Echo)
	out, err := r.Caddy("validate", "--config", r.Caddyfile).CombinedOutput()
	if err != nil {
		t.Errorf("beside a running gateway: %v\n%s", err, out)
	}
	served(t, r.Post(t, harness.Chat("m", "")), "afterwards")
	r.Gateway.Process.Kill()
	db := filepath.Join(r.Dir, "gateway.db")
	must(t, os.Remove(db))
	if out, err := r.Caddy("validate", "--config", r.Caddyfile).CombinedOutput(); err != nil {
		t.Errorf("without a running gateway: %v\n%s", err, out)
	}
	if _, err := os.Stat(db); !os.IsNotExist(err) {
		t.Errorf("validate made the database: %v", err)
	}
}

// Two gateways use one database: the second one names the file.
func TestLockedStore(t *testing.T) {
	t.Parallel()
	g := harness.Start(t, harness.Options{})
	text := read(t, g.Caddyfile)
	other := strings.NewReplacer(string(g.Admin), harness.FreeAddr(t), g.UDP, harness.FreeAddr(t), g.URL,
		"http://"+harness.FreeAddr(t)).Replace(string(text))
	path := filepath.Join(g.Dir, "Caddyfile.second")
	must(t, os.WriteFile(path, []byte(other), 0o600))
	second := g.StartProcess(t, "caddy-second", g.Caddy("run", "--config", path, "--adapter", "caddyfile"))
	if code := second.WaitExit(t, limit); code == 0 {
		t.Error("caddy ended with code 0")
	}
	want := "the store " + filepath.Join(g.Dir, "gateway.db") + " is already open"
	if log := second.Log(); !strings.Contains(log, want) {
		t.Errorf("the log lacks %q:\n%s", want, log)
	}
}

// A removed connector is disconnected at once, prints what to do, and exits with a code after which its
// service manager does not restart it.
func TestRemovedConnector(t *testing.T) {
	t.Parallel()
	r := newRig(t, harness.Options{Site: "connect_wait 100ms"})
	r.serve(t, "m", upstream.Echo)
	if _, stderr, code := r.Run(t, "connector", "remove", r.con.ID); code == 0 || !strings.Contains(stderr, `m`) {
		t.Errorf("removing a connector in use: code %d, %s", code, stderr)
	}
	r.Manage(t, http.MethodDelete, "/deployments/m", nil, nil)
	r.Command(t, nil, "connector", "remove", r.con.ID)
	if code := r.con.Process.WaitExit(t, limit); code != exitFatal {
		t.Errorf("the connector ended with code %d", code)
	}
	var list []any
	r.Manage(t, http.MethodGet, "/connectors", nil, &list)
	if len(list) != 0 {
		t.Errorf("connectors after the removal: %v", list)
	}
	if log := r.con.Process.Log(); !strings.Contains(log,
		"Error: the gateway closed the tunnel: removed; the connector was removed on the gateway; create a new one on the "+
			"gateway's machine with `caddy gateway connector create`") {
		t.Errorf("the connector does not say what happened, and what to do:\n%s", log)
	}
}

// A killed connector that does not come back is noticed soon: it gets no new requests. Waiting ones get an
// error as soon as a dead path would not have recovered either.
func TestConnectorThatStaysAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, harness.Options{})
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	r.serve(t, "m", func(x *upstream.Exchange) {
		x.Stream()
		x.Chunk(upstream.Delta("up-m", "hel"))
		x.Hold(release)
	})
	s := r.Stream(t, harness.Chat("m", `,"stream":true`))
	if _, err := s.Next(); err != nil {
		t.Fatal(err)
	}
	r.con.Process.Kill()
	rest, err := s.Rest()
	if err != nil || !strings.Contains(rest, `"code":"upstream_error"`) || !strings.Contains(rest, "connector was lost") {
		t.Errorf("the stream ended with %q, %v", rest, err)
	}
	r.con.WaitState(t, "offline", limit)
	r.Gateway.Process.WaitLog(t, `"reason":"no sign of life"`, limit) // after QUIC's limit of 15 s
}
