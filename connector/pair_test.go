package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/link"
)

const (
	pairCode = "PAIR-7K2M-9QXV"
	// connected is logged when a tunnel is up.
	connected = `"msg":"connected"`
)

// pairGateway answers each claim as configured, and welcomes a connector with the token that it
// has granted.
type pairGateway struct {
	*httptest.Server
	pin, server string
	answers     []link.Message // to a claim, in this order
	stays       atomic.Bool    // ignores drains

	mu       sync.Mutex
	claims   []link.Hello
	welcomed []link.Hello
	tunnels  chan *quic.Conn // one for each welcome
}

func newPairGateway(t *testing.T, answers ...link.Message) *pairGateway {
	t.Helper()
	key, err := link.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	cert, pin, err := link.Identity(key)
	if err != nil {
		t.Fatal(err)
	}
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := quic.Listen(socket, link.GatewayTLS(cert), link.GatewayQUIC())
	if err != nil {
		t.Fatal(err)
	}
	g := &pairGateway{pin: pin, server: socket.LocalAddr().String(), answers: answers, tunnels: make(chan *quic.Conn, 100)}
	for i, m := range answers {
		if _, ok := m.(link.Grant); ok {
			answers[i] = link.Grant{TunnelToken: g.token()}
		}
	}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			fmt.Fprint(w, `{"data":[]}`)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]string{
			"server": g.server, "pin": g.pin, "url": g.URL, "console": g.URL + "/console/", "version": "v1",
		})
	}))
	t.Cleanup(func() {
		g.Close()
		listener.Close()
		socket.Close()
	})
	go func() {
		for {
			conn, err := listener.Accept(context.Background())
			if err != nil {
				return
			}
			go g.serve(conn)
		}
	}()
	return g
}

func (g *pairGateway) token() string {
	return link.Token{Server: g.server, Pin: g.pin, Connector: "con_1", Secret: "s3cret"}.Encode()
}

func (g *pairGateway) serve(conn *quic.Conn) {
	stream, err := conn.AcceptStream(conn.Context())
	if err != nil {
		return
	}
	control := link.NewControl(stream)
	m, _ := control.Receive()
	hello, _ := m.(link.Hello)
	g.mu.Lock()
	if hello.Claim == "" {
		g.welcomed = append(g.welcomed, hello)
		_ = control.Send(link.Welcome{Session: "s", HeartbeatMillis: 20})
	} else {
		g.claims = append(g.claims, hello)
		for _, m := range g.answers {
			_ = control.Send(m)
		}
	}
	g.mu.Unlock()
	for first := true; ; first = false {
		m, err := control.Receive()
		if err != nil {
			return
		}
		// A ping shows that the welcome was read. A device that waits may also send one before
		// it has read the answer.
		if first && hello.Claim == "" {
			g.tunnels <- conn
		}
		if m == (link.Drain{}) && !g.stays.Load() {
			_ = conn.CloseWithError(quic.ApplicationErrorCode(link.CloseDrained), "")
		}
		_ = control.Send(link.Pong{})
	}
}

// seen returns the hellos so far.
func (g *pairGateway) seen() (claims, welcomed []link.Hello) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.claims), slices.Clone(g.welcomed)
}

// args returns the arguments for a pairing with this gateway.
func (g *pairGateway) args(config string, more ...string) []string {
	return append([]string{"pair", g.URL, pairCode, "--upstream", g.URL, "--config", config}, more...)
}

// noSecrets fails if an output contains a secret of the connector and the gateway.
func (g *pairGateway) noSecrets(t *testing.T, output string) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	secrets := []string{g.token(), "s3cret", "ptt_", pairCode}
	for _, claim := range g.claims {
		secrets = append(secrets, claim.Secret)
	}
	for _, secret := range secrets {
		if strings.Contains(output, secret) {
			t.Errorf("the output contains %s:\n%s", secret, output)
		}
	}
}

func soonPending() link.Pending {
	return link.Pending{Fingerprint: "sent", ExpiresAt: time.Now().Add(15 * time.Minute)}
}

func TestPairAndRun(t *testing.T) {
	g := newPairGateway(t, soonPending(), link.Grant{})
	config := filepath.Join(t.TempDir(), "postern", "connector.json")
	code, stdout, stderr := execute(t, connected, nil, g.args(config, "--name", "gpu-box")...)
	if code != exitOK || stdout != "" {
		t.Fatalf("code %d, stdout %q, stderr %s", code, stdout, stderr)
	}
	g.noSecrets(t, stderr)
	claims, welcomed := g.seen()
	if len(claims) != 1 || len(welcomed) != 1 || welcomed[0].Connector != "con_1" || claims[0].Name != "gpu-box" {
		t.Fatalf("%d claims, %d tunnels", len(claims), len(welcomed))
	}
	fingerprint := link.Fingerprint(g.pin, claims[0].Secret)
	for _, want := range []string{
		`"msg":"pairing"`, `"msg":"waiting for approval"`, fingerprint, g.URL + "/console/",
		`"msg":"paired"`, `"msg":"connected"`,
	} {
		if !strings.Contains(stderr, want) {
			t.Errorf("the log lacks %s:\n%s", want, stderr)
		}
	}
	for line := range strings.Lines(stderr) {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}
	info, err := os.Stat(config)
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}

	// A second pairing would discard this one.
	code, _, stderr = execute(t, "", nil, g.args(config)...)
	if code != exitPaired || !strings.Contains(stderr, "is already paired") || !strings.Contains(stderr, "--force") {
		t.Errorf("again: code %d, %s", code, stderr)
	}
	code, _, stderr = execute(t, connected, nil, g.args(config, "--force", "--no-run")...)
	claims, welcomed = g.seen()
	if code != exitOK || len(claims) != 2 || len(welcomed) != 1 {
		t.Errorf("by force: code %d, %d claims, %d tunnels, %s", code, len(claims), len(welcomed), stderr)
	}
}

// TestPairOneModel: the flag is of the server that it is given with; a pairing again keeps it.
func TestPairOneModel(t *testing.T) {
	g := newPairGateway(t, link.Grant{})
	path := filepath.Join(t.TempDir(), "connector.json")
	for _, step := range []struct {
		more []string
		want bool
	}{
		{[]string{"--one-model"}, true},
		{nil, true},
		{[]string{"--upstream", g.URL + "/other"}, false},
	} {
		args := g.args(path, append(step.more, "--force", "--no-run")...)
		if code, _, stderr := execute(t, connected, nil, args...); code != exitOK {
			t.Fatalf("%v: code %d, %s", step.more, code, stderr)
		}
		file, err := os.ReadFile(path)
		if has := strings.Contains(string(file), `"one_model_at_a_time": true`); err != nil || has != step.want {
			t.Errorf("%v: %s, %v", step.more, file, err)
		}
	}
}

// TestPairThenRunByDefault: the run command finds the file of the pair command. The code may
// come before the URL.
func TestPairThenRunByDefault(t *testing.T) {
	g := newPairGateway(t, link.Grant{})
	env := map[string]string{"XDG_CONFIG_HOME": t.TempDir(), "UPSTREAM": g.URL}
	if code, _, stderr := execute(t, connected, env, "pair", strings.ToLower(pairCode), g.URL,
		"--no-run"); code != exitOK {
		t.Fatalf("code %d, %s", code, stderr)
	}
	delete(env, "UPSTREAM")
	code, _, stderr := execute(t, connected, env, "run")
	if code != exitOK || !strings.Contains(stderr, `"msg":"connected"`) {
		t.Errorf("run: code %d, %s", code, stderr)
	}
	// A token in the environment takes precedence.
	env["TUNNEL_TOKEN"], env["UPSTREAM"] = testToken.Encode(), g.URL
	_, _, stderr = execute(t, `"server":"127.0.0.1:1"`, env, "run")
	if !strings.Contains(stderr, `"server":"127.0.0.1:1"`) {
		t.Errorf("run with a token: %s", stderr)
	}
}

func TestPairRefused(t *testing.T) {
	for code, want := range map[string]string{
		link.DenyPairingUnknown: "unknown pairing code",
		link.DenyPairingExpired: "the code expired",
		link.DenyPairingUsed:    "the code was already used",
		link.DenyPairingDenied:  "this device was denied",
		link.DenyPairingOff:     "pairing is disabled",
		link.DenyHello:          "the reason (bad_hello)",
	} {
		t.Run(code, func(t *testing.T) {
			g := newPairGateway(t, link.Deny{Code: code, Message: "the reason"})
			config := filepath.Join(t.TempDir(), "connector.json")
			exit, _, stderr := execute(t, connected, nil, g.args(config)...)
			if exit != exitRefused || !strings.Contains(stderr, "Error: ") || !strings.Contains(stderr, want) {
				t.Errorf("code %d, %s", exit, stderr)
			}
			g.noSecrets(t, stderr)
			if _, err := os.Stat(config); !os.IsNotExist(err) {
				t.Errorf("there is a configuration: %v", err)
			}
		})
	}
}

func TestPairStopped(t *testing.T) {
	g := newPairGateway(t, soonPending())
	code, _, stderr := execute(t, "waiting for approval", nil, g.args(filepath.Join(t.TempDir(), "connector.json"))...)
	if code != exitRuntime || !strings.Contains(stderr, "stopped before this machine was paired") ||
		!strings.Contains(stderr, "bound to this attempt") {
		t.Errorf("code %d, %s", code, stderr)
	}
}

func TestPairUsage(t *testing.T) {
	dir := t.TempDir()
	several := filepath.Join(dir, "several.json")
	if err := os.WriteFile(several, []byte(`{"upstreams":{"a":{"BaseUrl":"http://a:1/v1"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	fresh := filepath.Join(dir, "connector.json")
	for _, test := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"no arguments", nil, exitUsage, "give the gateway's URL and the pairing code"},
		{"no home", []string{"https://gw", pairCode}, exitUsage, "--config FILE"},
		{"no upstream", []string{"https://gw", pairCode, "-c", fresh}, exitUsage, "--upstream: missing"},
		{
			"upstream with an endpoint",
			[]string{"https://gw", pairCode, "-c", fresh, "-u", "http://a:1/v1/models"},
			exitUsage,
			"must not have a path after /v1",
		},
		{
			"upstreams are there",
			[]string{"https://gw", pairCode, "-c", several, "-u", "http://a:1"},
			exitUsage,
			"already has upstreams",
		},
		{
			"one model of several",
			[]string{"https://gw", pairCode, "-c", several, "--one-model"},
			exitUsage,
			`write "one_model_at_a_time": true into one of them`,
		},
		{
			"plain HTTP",
			[]string{"http://gw.example.com", pairCode, "-c", fresh, "-u", "http://127.0.0.1:1"},
			exitUsage, "--pin",
		},
		{
			"bad server",
			[]string{"https://gw", pairCode, "-c", fresh, "-u", "http://127.0.0.1:1", "--server", "gw"},
			exitUsage, "--server: ",
		},
		{
			"no authority",
			[]string{"https://gw", pairCode, "-c", fresh, "-u", "http://127.0.0.1:1", "--ca", several},
			exitUsage, "several.json contains no certificate",
		},
		{
			"a closed port",
			[]string{"http://127.0.0.1:1", pairCode, "-c", fresh, "-u", "http://127.0.0.1:1"},
			exitRuntime,
			"check the address",
		},
		{"a folder that cannot be", []string{
			"https://gw", pairCode, "-c", several + "/x/c.json", "-u",
			"http://127.0.0.1:1",
		}, exitUsage, "not a directory"},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, _, stderr := execute(t, "", nil, append([]string{"pair"}, test.args...)...)
			if code != test.code || !strings.Contains(stderr, test.want) || strings.Contains(stderr, pairCode) {
				t.Errorf("code %d, %s", code, stderr)
			}
		})
	}
}

// TestPairErrorsAreLegible: neither a refusal nor an untrusted certificate can send sequences
// to the terminal.
func TestPairErrorsAreLegible(t *testing.T) {
	g := newPairGateway(t, link.Deny{Code: "no\x1b[31m", Message: "not \x1b]0;title\x07\r you"})
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"a\x1b]0;title\x07\x1b[2Jb"},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	imposter := httptest.NewUnstartedServer(http.NotFoundHandler())
	imposter.Config.ErrorLog = log.New(io.Discard, "", 0)
	imposter.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}}}
	imposter.StartTLS()
	defer imposter.Close()

	for url, want := range map[string]string{
		g.URL:        "not ]0;title you (no[31m)",
		imposter.URL: "is for another name",
	} {
		url = strings.Replace(url, "https://127.0.0.1", "https://localhost", 1)
		_, _, stderr := execute(t, connected, nil, "pair", url, pairCode, "--upstream", g.URL, "--config",
			filepath.Join(t.TempDir(), "c.json"))
		if !strings.Contains(stderr, want) || strings.ContainsAny(stderr, "\x1b\x07\r") {
			t.Errorf("%s: it prints %q", url, stderr)
		}
	}
}
