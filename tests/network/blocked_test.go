//go:build linux

package network

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/rig/lab"
	"github.com/postern-dev/postern/tests/upstream"
)

// webSocket is in a connector's log if its tunnel uses a WebSocket.
const webSocket = `"transport":"websocket"`

// withoutUDP drops all UDP packets.
var withoutUDP = lab.Conditions{Drop: func(p lab.Packet, _ bool) bool { return p.UDP() }}

// addURL adds the URL of the gateway's WebSocket to the connector's token.
func (r *rig) addURL(t *testing.T, c *harness.Connector) *harness.Connector {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(c.Token, "ptt_"))
	must(t, err)
	token := map[string]string{}
	must(t, json.Unmarshal(raw, &token))
	token["url"] = r.gateway.URL
	raw, err = json.Marshal(token)
	must(t, err)
	changed := "ptt_" + base64.RawURLEncoding.EncodeToString(raw)
	r.gateway.Hide(changed)
	config, err := os.ReadFile(c.Config)
	must(t, err)
	must(t, os.WriteFile(c.Config, []byte(strings.Replace(string(config), c.Token, changed, 1)), 0o600))
	return c
}

// If UDP is blocked, a tunnel uses a WebSocket. When UDP works again, it changes to QUIC, and no request
// fails.
func TestUDPBlockedFromTheStart(t *testing.T) {
	t.Parallel()
	r := newGateway(t, harness.Options{})
	r.WAN.Set(withoutUDP)
	r.box = r.addURL(t, r.connector(t, "box", map[string]any{}))
	start := time.Now()
	r.launch(t, r.box)
	r.box.WaitState(t, "online", patience)
	t.Logf("online after %v", time.Since(start).Round(100*time.Millisecond))
	r.box.Process.WaitLog(t, webSocket, patience)
	r.serve(t, "echo", upstream.Echo)
	const model = "essay"
	events := []string{
		upstream.Role(model), upstream.Delta(model, strings.Repeat("word ", 1000)),
		upstream.Finish(model, "stop"), upstream.Done,
	}
	r.serve(t, model, upstream.Events(events...))
	r.ask(t, 20, 5, model, strings.Join(events, ""))
	if r.WAN.Lost() == 0 {
		t.Error("the line has lost no UDP: nothing was tested")
	}
	if testing.Short() {
		return // what follows takes up to two minutes
	}
	load, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	var asked atomic.Int64
	for range 4 {
		clients.Go(func() {
			for load.Err() == nil {
				r.ask(t, 1, 1, model, strings.Join(events, ""))
				asked.Add(1)
			}
		})
	}
	r.WAN.Heal()
	r.box.Process.WaitLog(t, `"transport":"quic"`, time.Minute+patience)
	meanwhile := asked.Load()
	harness.Poll(t, patience, "answers over QUIC", func(context.Context) error {
		if n := asked.Load() - meanwhile; n < 100 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
	stop()
	clients.Wait()
	t.Logf("back to QUIC after %v, %d requests meanwhile", time.Since(start).Round(time.Second), meanwhile)
}

// If UDP is blocked during the life of a tunnel, its requests fail and the connector reconnects over a
// WebSocket.
func TestUDPBlockedInMidLife(t *testing.T) {
	long(t)
	t.Parallel()
	r := newGateway(t, harness.Options{})
	r.box = r.addURL(t, r.connector(t, "box", map[string]any{}))
	r.launch(t, r.box)
	r.box.WaitState(t, "online", patience)
	r.serve(t, "ticker", upstream.SlowTokens(50*time.Millisecond, nil))
	r.serve(t, "echo", upstream.Echo)
	f := r.follow(t, "ticker")
	f.wait(t, 3, patience)
	if strings.Contains(r.box.Process.Log(), webSocket) {
		t.Fatal("the tunnel uses a WebSocket although UDP works")
	}
	start := time.Now()
	r.WAN.Set(withoutUDP)
	r.box.Process.WaitLog(t, webSocket, patience)
	t.Logf("over a WebSocket after %v", time.Since(start).Round(100*time.Millisecond))
	r.waitAnswer(t, "echo", patience)
	f.end(t)
	if f.err != nil || !strings.HasPrefix(f.last, streamError) {
		t.Errorf("the stream ended with %q, %v", f.last, f.err)
	}
}

// If the WebSocket's port has an unknown certificate, the connector logs that once, with a remedy. The tunnel
// inside trusts only the token's pin.
func TestUnknownCertificate(t *testing.T) {
	t.Parallel()
	r := newGateway(t, harness.Options{HTTPS: true})
	r.WAN.Set(withoutUDP)
	r.box = r.addURL(t, r.connector(t, "box", map[string]any{}))
	r.launch(t, r.box)
	r.box.WaitState(t, "online", patience)
	r.box.Process.WaitLog(t, webSocket, patience)
	r.serve(t, "echo", upstream.Echo)
	r.waitAnswer(t, "echo", patience)
	const warning = `"level":"WARN","msg":"the gateway's HTTPS certificate cannot be verified; the tunnel itself is ` +
		`still protected by the pin"`
	const fix = `"fix":"if a proxy terminates TLS, install its certificate authority here; otherwise check the ` +
		`gateway's certificate"`
	if log := r.box.Process.Log(); strings.Count(log, warning) != 1 || !strings.Contains(log, fix) {
		t.Errorf("the log does not have one warning with the fix:\n%s", log)
	}
}

// portal redirects all TCP connections to a login page, like the captive portal of a hotel.
func (r *rig) portal(t *testing.T) {
	t.Helper()
	var l net.Listener
	var err error
	r.Router.Do(func() { l, err = net.Listen("tcp4", ":8080") })
	must(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<html><title>Welcome</title>Please sign in.")
	})}
	go func() { _ = server.Serve(l) }() // ends when the listener is closed
	t.Cleanup(func() { server.Close() })
	must(t, r.Router.Run("nft", "-f", "-", `
table ip portal {
	chain guests {
		type nat hook prerouting priority dstnat
		iifname "lan" tcp dport 1-65535 redirect to :8080
	}
}
`))
}

// The connector distinguishes a captive portal from a gateway and logs a remedy. After the login, it connects
// without help.
func TestCaptivePortal(t *testing.T) {
	t.Parallel()
	r := newGateway(t, harness.Options{})
	r.portal(t)
	r.WAN.Set(withoutUDP)
	r.box = r.addURL(t, r.connector(t, "box", map[string]any{}))
	r.launch(t, r.box)
	const reason, fix = "a web page answers in place of the gateway", `"fix":"this network may require a sign-in: open ` +
		`any page in a browser"`
	r.box.Process.WaitLog(t, reason, patience)
	r.box.Process.WaitLog(t, fix, patience)
	if state, err := r.box.State(t.Context()); err != nil || state != "offline" {
		t.Errorf("behind the portal, the connector is %s, %v", state, err)
	}
	if err := r.onlyPortal(); err != nil {
		t.Error(err)
	}
	must(t, r.Router.Run("nft", "delete", "table", "ip", "portal"))
	start := time.Now()
	r.box.WaitState(t, "online", patience)
	t.Logf("online %v after the sign-in", time.Since(start).Round(100*time.Millisecond))
}

// onlyPortal checks that connections from home reach the portal.
func (r *rig) onlyPortal() error {
	var conn net.Conn
	var err error
	r.Home.Do(func() { conn, err = net.Dial("tcp4", strings.TrimPrefix(r.gateway.URL, "http://")) })
	if err != nil {
		return fmt.Errorf("reaching the portal: %w", err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET / HTTP/1.0\r\n\r\n")
	answer, err := io.ReadAll(conn)
	if err == nil && !strings.Contains(string(answer), "Welcome") {
		err = errors.New("the answer is not from the portal: nothing was tested")
	}
	return err
}
