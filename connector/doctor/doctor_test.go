package doctor

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/dial"
	"github.com/postern-dev/postern/connector/link"
)

// modelServer is a model server that works.
func modelServer(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/v1/models":
		io.WriteString(w, `{"data": [{"id": "tiny"}, {"id": "large"}]}`)
	case r.URL.Path == "/v1/chat/completions":
		body, _ := io.ReadAll(r.Body)
		if !strings.Contains(string(body), `"model":"tiny"`) || !strings.Contains(string(body), `"stream":true`) {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: {}\n\ndata: {}\n\ndata: [DONE]\n\n")
	}
}

// diagnose runs the checks against a gateway and, for WebSocket, a web server.
func diagnose(t *testing.T, c config.Config, web http.HandlerFunc, change func(*diagnosis)) map[string]Finding {
	t.Helper()
	token, err := link.ParseToken(c.TunnelToken)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]Finding{}
	d := &diagnosis{
		config: c, now: time.Now, dialTimeout: time.Minute, probeTimeout: time.Minute,
		target: dial.Target{
			Server: token.Server, URL: token.URL, Token: func() link.Token { return token },
			Logger: slog.New(slog.DiscardHandler),
		},
		report: func(f Finding) {
			if (f.Fix == "") != (f.Result == ResultOK || f.Result == ResultSkipped) {
				t.Errorf("%s, %s, has the fix %q", f.Check, f.Result, f.Fix)
			}
			if strings.Contains(fmt.Sprint(f), token.Secret) {
				t.Errorf("%+v contains the secret", f)
			}
			found[f.Check] = f
		},
	}
	d.client = dial.HTTPClient()
	if web != nil {
		server := httptest.NewTLSServer(web)
		t.Cleanup(server.Close)
		d.client = server.Client()
		d.client.Transport.(*http.Transport).TLSClientConfig.InsecureSkipVerify = true
		d.client.Transport.(*http.Transport).DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", server.Listener.Addr().String())
		}
	}
	if change != nil {
		change(d)
	}
	d.run(t.Context())
	return found
}

func upgradeRequired(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == link.WebSocketPath && r.Method == http.MethodGet {
		w.WriteHeader(http.StatusUpgradeRequired)
	}
}

func TestHealth(t *testing.T) {
	g := startGateway(t)
	box := serveBox(t, modelServer)
	c := g.config(map[string]string{"box": box.URL})
	found := diagnose(t, c, upgradeRequired, nil)
	for _, name := range []string{"dns", "udp", "pin", "websocket", "token", "clock", "models of box", "stream of box"} {
		if f := found[name]; f.Result != ResultOK || f.Detail == "" {
			t.Errorf("%s: %+v", name, f)
		}
	}
	if got := found["models of box"].Detail; !strings.HasSuffix(got, " has 2 models, the first is tiny") {
		t.Errorf("the models: %s", got)
	}
	if g.count() != 0 {
		t.Error("it sent a hello that takes a tunnel's place")
	}

	// The most frequent failure: the gateway no longer knows the token.
	g.set(func() { g.deny = &link.Deny{Code: link.DenyCredentials, Message: "the tunnel token is not valid"} })
	found = diagnose(t, c, upgradeRequired, nil)
	if f := found["token"]; f.Result != ResultFailed || !strings.Contains(f.Detail, "not valid") ||
		!strings.Contains(f.Fix, "pair again") {
		t.Errorf("a token that is refused: %+v", f)
	}
	g.set(func() { g.deny = &link.Deny{Code: link.DenyUnavailable, Message: "starting", Retry: true} })
	if f := diagnose(t, c, upgradeRequired, nil)["token"]; f.Result != ResultWarning {
		t.Errorf("a gateway that cannot decide: %+v", f)
	}
	g.set(func() { g.deny, g.mute = nil, true })
	found = diagnose(t, c, upgradeRequired, func(d *diagnosis) { d.dialTimeout = 500 * time.Millisecond })
	if f := found["token"]; f.Result != ResultSkipped {
		t.Errorf("a silent gateway: %+v", f)
	}
	if err := Run(t.Context(), config.Config{}, time.Minute, "", nil); err == nil ||
		!strings.Contains(err.Error(), "tunnel_token: missing") {
		t.Errorf("error %v", err)
	}
}

// The addresses of edges that this machine cannot reach are named.
func TestEdges(t *testing.T) {
	g := startGateway(t)
	c := g.config(map[string]string{"box": "http://127.0.0.1:1"})
	check := func(change func(*diagnosis)) Finding { return diagnose(t, c, upgradeRequired, change)["edges"] }
	if f := check(nil); f.Check != "" {
		t.Errorf("a single gateway: %+v", f)
	}
	other := startGateway(t)
	mute, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	a := link.Edge{Name: "edge-a", Server: g.token.Server}
	g.set(func() { g.edges = []link.Edge{a} })
	if f := check(nil); f.Result != ResultOK || !strings.Contains(f.Detail, "each of 1 ") {
		t.Errorf("one edge: %+v", f)
	}
	b := link.Edge{Name: "edge-b", Server: mute.LocalAddr().String()}
	foreign := link.Edge{Name: "edge-c", Server: other.token.Server}
	g.set(func() { g.edges = []link.Edge{a, b, foreign} })
	f := check(func(d *diagnosis) { d.dialTimeout = 3 * time.Second }) // edge-a answers in time also on a busy machine
	for _, part := range []string{"edge-b at " + b.Server + ": ", "edge-c at " + foreign.Server + ": "} {
		if f.Result != ResultFailed || !strings.Contains(f.Detail, part) || strings.Contains(f.Detail, "edge-a") {
			t.Errorf("three edges: %+v", f)
		}
	}
}

func TestWayToTheGateway(t *testing.T) {
	g := startGateway(t)
	c := g.config(map[string]string{"box": "http://127.0.0.1:1"})
	expect := func(found map[string]Finding, check string, result Result, parts ...string) {
		t.Helper()
		f := found[check]
		for _, part := range parts {
			if f.Result != result || !strings.Contains(f.Detail+" FIX "+f.Fix, part) {
				t.Errorf("%s: %+v", check, f)
			}
		}
	}
	silent, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()

	found := diagnose(t, c, nil, func(d *diagnosis) {
		d.target.Server,
			d.dialTimeout = silent.LocalAddr().String(), 200*time.Millisecond
	})
	expect(found, "udp", ResultFailed, "no answer over QUIC", "UDP port ", "firewall")
	expect(found, "pin", ResultSkipped, "without an answer over QUIC")
	expect(found, "websocket", ResultFailed, "where UDP is blocked", "HTTPS_PROXY")
	expect(found, "clock", ResultSkipped, "without an answer over HTTPS")
	expect(found, "token", ResultSkipped, "the gateway cannot be reached")

	found = diagnose(t, c, nil, func(d *diagnosis) { d.target.Server = "nowhere.invalid:7443" })
	expect(found, "dns", ResultFailed, "nowhere.invalid has no address", "nslookup nowhere.invalid")
	expect(found, "udp", ResultSkipped, "unknown")

	other := testToken
	other.Server = g.token.Server
	c.TunnelToken = other.Encode()
	found = diagnose(t, c, nil, nil)
	c = g.config(map[string]string{"box": "http://127.0.0.1:1"})
	expect(found, "udp", ResultOK, "answers over QUIC")
	expect(found, "pin", ResultFailed, "is not the gateway", "pair again")
	expect(found, "token", ResultSkipped, "is not the gateway")

	found = diagnose(t, c, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Date", time.Now().Add(-3*time.Hour).UTC().Format(http.TimeFormat))
		io.WriteString(w, "<h1>Welcome to our hotel</h1>")
	}, nil)
	expect(found, "websocket", ResultWarning, "network's login page", "sign in to the network")
	expect(found, "clock", ResultFailed, "clock is ahead of", "timedatectl")

	found = diagnose(t, c, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }, nil)
	expect(found, "websocket", ResultWarning, "answers with status 404")

	found = diagnose(t, c, upgradeRequired, func(d *diagnosis) {
		d.client.Transport.(*http.Transport).TLSClientConfig.InsecureSkipVerify = false
		d.client.Transport.(*http.Transport).TLSClientConfig.RootCAs = x509.NewCertPool()
	})
	expect(found, "websocket", ResultOK, "does not know the authority of its certificate, and verifies the gateway by the")

	// The tunnel works over the WebSocket.
	withoutUDP := func(d *diagnosis) {
		d.target.Server, d.dialTimeout = silent.LocalAddr().String(), 200*time.Millisecond
		d.client.Transport.(*http.Transport).TLSClientConfig.InsecureSkipVerify = false
		d.client.Transport.(*http.Transport).TLSClientConfig.RootCAs = x509.NewCertPool()
	}
	asked := 0
	found = diagnose(t, c, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			asked++
		}
		upgradeRequired(w, r)
	}, withoutUDP)
	if asked != 1 {
		t.Errorf("it requested the tunnel %d times", asked)
	}
	expect(found, "udp", ResultWarning, "the tunnel uses the WebSocket", "FIX for a lower latency, open UDP port")
	expect(found, "websocket", ResultOK, "verifies the gateway by the pin")

	c.Transport = config.TransportQUIC
	expect(diagnose(t, c, upgradeRequired, withoutUDP), "udp", ResultFailed, "no answer over QUIC")
	expect(diagnose(t, c, upgradeRequired, nil), "websocket", ResultSkipped, `"transport": "quic"`)
}

func TestUpstreams(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("wrong"), 0o600); err != nil {
		t.Fatal(err)
	}
	models := func(w http.ResponseWriter, r *http.Request, rest http.HandlerFunc) {
		if r.URL.Path == "/v1/models" {
			modelServer(w, r)
			return
		}
		rest(w, r)
	}
	tests := []struct {
		name           string
		handler        http.HandlerFunc // nil: a closed port
		key            string
		models, stream Result
		detail         string
	}{
		{"down", nil, "", ResultFailed, ResultSkipped, "connection refused FIX start the model server"},
		{
			"no key", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }, "", ResultFailed, ResultSkipped,
			"status 401 FIX the server requires a key",
		},
		{
			"wrong key", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) }, key, ResultFailed, ResultSkipped,
			"rejects the key in " + key,
		},
		{
			"elsewhere", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, "", ResultFailed, ResultSkipped,
			"must be under /v1",
		},
		{
			"broken", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, "", ResultFailed, ResultSkipped,
			"see the log of the model server",
		},
		{
			"something else", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hi") }, "", ResultFailed,
			ResultSkipped, "not a list of models",
		},
		{
			"empty", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"data": []}`) }, "", ResultWarning,
			ResultSkipped, "load a model",
		},
		{"one model", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/models" {
				modelServer(w, r)
				return
			}
			io.WriteString(w, `{"data": [{"id": "tiny"}]}`)
		}, "", ResultOK, ResultOK, " has 1 model, tiny"},
		{"embeddings", func(w http.ResponseWriter, r *http.Request) {
			models(w, r, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(400) })
		}, "", ResultOK, ResultWarning, "embeddings"},
		{"no stream", func(w http.ResponseWriter, r *http.Request) {
			models(w, r, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") })
		}, "", ResultOK, ResultFailed, "not an event stream"},
		{"breaks off", func(w http.ResponseWriter, r *http.Request) {
			models(w, r, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				io.WriteString(w, "data: {}\n\n")
				http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			})
		}, "", ResultOK, ResultFailed, "the stream was interrupted"},
		{"sends nothing", func(w http.ResponseWriter, r *http.Request) {
			models(w, r, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", "text/event-stream") })
		}, "", ResultOK, ResultFailed, "ended without an event"},
		{"slow", func(w http.ResponseWriter, r *http.Request) {
			models(w, r, func(_ http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				<-r.Context().Done()
			})
		}, "", ResultOK, ResultFailed, "did not answer within 300ms FIX it may be loading"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			base := "http://127.0.0.1:1"
			if tt.handler != nil {
				base = serveBox(t, tt.handler).URL
			}
			c := config.Config{
				TunnelToken: testToken.Encode(),
				Upstreams:   map[string]config.Upstream{"box": {BaseURL: base + "/v1", APIKeyFile: tt.key}},
			}
			found := diagnose(t, c, upgradeRequired, func(d *diagnosis) {
				if d.dialTimeout = time.Millisecond; tt.name == "slow" {
					d.probeTimeout = 300 * time.Millisecond
				}
			})
			m, s := found["models of box"], found["stream of box"]
			if text := m.Detail + " FIX " + m.Fix + s.Detail + " FIX " + s.Fix; m.Result != tt.models ||
				s.Result != tt.stream || !strings.Contains(text, tt.detail) {
				t.Errorf("models %+v\nstream %+v", m, s)
			}
		})
	}
	t.Run("key file away", func(t *testing.T) {
		c := config.Config{TunnelToken: testToken.Encode(), Upstream: "http://127.0.0.1:1", APIKeyFile: "/none"}
		found := diagnose(t, c, upgradeRequired, func(d *diagnosis) { d.dialTimeout = time.Millisecond })
		if f := found["upstreams"]; f.Result != ResultFailed || !strings.Contains(f.Detail, "/none") {
			t.Errorf("%+v", f)
		}
	})
}

const decades = 60 * (365*24 + 6) * time.Hour

// TestWrongClock: with a clock that is decades off, no certificate can be verified, but doctor
// still finds the right time.
func TestWrongClock(t *testing.T) {
	g := startGateway(t)
	c := g.config(map[string]string{"box": "http://127.0.0.1:1"})
	for off, want := range map[time.Duration]string{
		-decades: "this machine's clock is behind the gateway's: it shows ",
		decades:  "this machine's clock is ahead of the gateway's: it shows ",
	} {
		server := httptest.NewTLSServer(http.HandlerFunc(upgradeRequired))
		server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		defer server.Close()
		token := g.token
		token.URL = server.URL
		c.TunnelToken = token.Encode()
		found := diagnose(t, c, nil, func(d *diagnosis) {
			d.now = func() time.Time { return time.Now().Add(off) }
			d.target.URL = token.URL
			d.client = server.Client()
			d.client.Transport.(*http.Transport).TLSClientConfig.Time = d.now
		})
		if f := found["clock"]; f.Result != ResultFailed || !strings.HasPrefix(f.Detail, want) ||
			!strings.Contains(f.Fix, "timedatectl") {
			t.Errorf("%v: %+v", off, f)
		}
		if f := found["websocket"]; f.Result != ResultWarning ||
			!strings.Contains(f.Detail, "the gateway accepts tunnels") ||
			!strings.Contains(f.Fix, "check the clock of this machine") {
			t.Errorf("%v: %+v", off, f)
		}
		if f := found["udp"]; f.Result != ResultOK {
			t.Errorf("%v: %+v", off, f)
		}
	}
}
