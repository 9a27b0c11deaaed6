package agent

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/version"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// post returns a request as the gateway sends it.
func post(ctx context.Context, body string) *http.Request {
	r, err := http.NewRequestWithContext(ctx, "POST", "http://box/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	return r
}

func TestAgentHello(t *testing.T) {
	g := startGateway(t)
	a := startAgent(t, g, "http://127.0.0.1:1", nil)
	got := g.session().hello
	host, _ := os.Hostname()
	kept := int64(32 << 20)
	want := link.Hello{
		Connector: testToken.Connector, Secret: testToken.Secret, Instance: a.config.hello.Instance, Name: host,
		Version: version.Number(),
		OS:      runtime.GOOS + "/" + runtime.GOARCH, Upstreams: []string{"box"}, KeptPrompts: &kept,
	}
	if !reflect.DeepEqual(got, want) || got.Instance == "" {
		t.Errorf("got %#v\nwant %#v", got, want)
	}
	wait.Until(t, "the log", func() bool {
		return strings.Contains(a.log.String(),
			"msg=connected remote="+g.token.Server)
	})
}

func TestAgentComesBack(t *testing.T) {
	t.Parallel()
	t.Run("after a shutdown", func(t *testing.T) {
		g := startGateway(t)
		a := startAgent(t, g, "http://127.0.0.1:1", longestPauses)
		first := g.session()
		first.close(link.CloseShutdown)
		second := g.session()
		if second.hello.Instance != first.hello.Instance {
			t.Error("another instance came back")
		}
		if log := a.log.String(); !strings.Contains(log,
			`level=INFO msg=disconnected reason="the gateway closed the tunnel: shutdown" retry_in=500ms`) {
			t.Errorf("log %s", log)
		}
	})
	t.Run("after a kill", func(t *testing.T) {
		g := startGateway(t)
		a := startAgent(t, g, "http://127.0.0.1:1", longestPauses)
		g.session()
		g.kill()
		g.lose(t, 3) // packets, the first pings among them
		g.listen(g.token.Server)
		g.session()
		if log := a.log.String(); !strings.Contains(log,
			`msg=disconnected reason="the gateway was restarted, or has given the tunnel up" retry_in=200ms`) {
			t.Errorf("log %s", log)
		}
	})
	t.Run("after silence", func(t *testing.T) {
		g := startGateway(t)
		g.set(func() { g.silent = true })
		a := startAgent(t, g, "http://127.0.0.1:1", func(a *instance) { a.lostAfter = 500 * time.Millisecond })
		first := g.session()
		wait.For(t, first.conn.Context().Done(), "the end of the silent tunnel")
		g.set(func() { g.silent = false })
		if code, ok := link.CloseReason(context.Cause(first.conn.Context())); !ok || code != link.CloseLost {
			t.Errorf("it was closed with %v", context.Cause(first.conn.Context()))
		}
		g.session()
		if log := a.log.String(); !strings.Contains(log,
			`msg=disconnected reason="the gateway does not answer pings" retry_in=`) {
			t.Errorf("log %s", log)
		}
	})
}

// longestPauses removes the jitter from the pauses between attempts.
func longestPauses(a *instance) { a.legs[0].retry.random = func() float64 { return 1 } }

// lived is how long a tunnel was up, which a busy machine makes uncertain.
var lived = regexp.MustCompile(` lived=\d+s`)

// TestAgentEndings checks what is logged, and that no quick retry follows an end by an
// operator.
func TestAgentEndings(t *testing.T) {
	tests := []struct {
		name  string
		setup func(g *fakeGateway)
		close link.CloseCode
		want  string
	}{
		{
			name: "refused for now",
			setup: func(g *fakeGateway) {
				g.set(func() { g.deny = &link.Deny{Code: link.DenyUnavailable, Message: "busy", Retry: true} })
			},
			want: `level=WARN msg="cannot connect" reason="the gateway refused the connector: busy (unavailable)" ` +
				`retry_in=250ms`,
		},
		{
			name: "replaced", close: link.CloseReplaced,
			want: `level=ERROR msg=disconnected reason="the gateway closed the tunnel: replaced" retry_in=22.5s fix="another ` +
				`connector runs with the same tunnel token;`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := startGateway(t)
			if tt.setup != nil {
				tt.setup(g)
			}
			a := startAgent(t, g, "http://127.0.0.1:1",
				func(a *instance) { a.legs[0].retry.random = func() float64 { return 0.5 } })
			if tt.close != 0 {
				g.session().close(tt.close)
			}
			want := strings.ReplaceAll(tt.want, "ADDRESS", g.token.Server)
			wait.Until(t, "the log line "+want,
				func() bool { return strings.Contains(lived.ReplaceAllString(a.log.String(), ""), want) })
			if got := g.count(); tt.close != 0 && got > 1 {
				t.Errorf("%d hellos", got)
			}
		})
	}
}

func TestAgentIgnoresAMuteGatewayAtItsEnd(t *testing.T) {
	g := startGateway(t)
	g.set(func() { g.mute = true })
	a := startAgent(t, g, "http://127.0.0.1:1", func(a *instance) { a.dialLimit = forever })
	wait.Until(t, "a hello", func() bool { return g.count() == 1 })
	a.stop()
	if err := wait.For(t, a.result, "the agent's end"); err != nil {
		t.Errorf("Run returned %v", err)
	}
}

func TestAgentDrains(t *testing.T) {
	g := startGateway(t)
	working, finish := make(chan struct{}), make(chan struct{})
	server := serveModel(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "begun, ")
		http.NewResponseController(w).Flush()
		close(working)
		<-finish
		io.WriteString(w, "finished")
	})
	a := startAgent(t, g, server.URL, nil)
	s := g.session()
	answer, err := s.roundTrip(post(t.Context(), "{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	wait.For(t, working, "the upstream")

	a.stop()
	if m := wait.For(t, s.got, "the drain"); m != (link.Drain{}) {
		t.Fatalf("got %#v", m)
	}
	if err := s.control.Send(link.DrainOK{}); err != nil {
		t.Fatal(err)
	}
	close(finish)
	if body, err := io.ReadAll(answer.Body); err != nil || string(body) != "begun, finished" {
		t.Errorf("the running request got %q, %v", body, err)
	}
	select {
	case err := <-a.result:
		t.Fatalf("Run returned %v before the gateway had closed", err)
	default:
	}
	s.close(link.CloseDrained)
	if err := wait.For(t, a.result, "the agent's end"); err != nil {
		t.Errorf("Run returned %v", err)
	}
	if got := g.count(); got != 1 {
		t.Errorf("%d hellos", got)
	}
}

func TestAgentDrainTimeout(t *testing.T) {
	g := startGateway(t)
	working, freed := make(chan struct{}), make(chan struct{})
	server := serveModel(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		close(working)
		<-r.Context().Done()
		close(freed)
	})
	a := startAgent(t, g, server.URL, func(a *instance) { a.DrainTimeout = 100 * time.Millisecond })
	s := g.session()
	failed := make(chan error, 1)
	go func() {
		_, err := s.roundTrip(post(t.Context(), "{}"))
		failed <- err
	}()
	wait.For(t, working, "the upstream")
	a.stop()
	if err := wait.For(t, a.result, "the agent's end"); err != nil {
		t.Errorf("Run returned %v", err)
	}
	if err := wait.For(t, failed, "the request's end"); err == nil {
		t.Error("the request that was cut had an answer")
	}
	wait.For(t, freed, "the upstream to be freed")
	if log := a.log.String(); !strings.Contains(log, "running requests did not finish in time") {
		t.Errorf("log %s", log)
	}
}

func TestAgentAnswersTheGateway(t *testing.T) {
	g := startGateway(t)
	startAgent(t, g, "http://127.0.0.1:1", nil)
	s := g.session()
	for _, exchange := range []struct{ send, want link.Message }{
		{link.Ping{}, link.Pong{}},
		{link.Drain{}, link.DrainOK{}},
	} {
		if err := s.control.Send(exchange.send); err != nil {
			t.Fatal(err)
		}
		if got := wait.For(t, s.got, "an answer"); got != exchange.want {
			t.Errorf("%#v was answered with %#v", exchange.send, got)
		}
	}
}

func TestNewErrors(t *testing.T) {
	tests := []struct {
		name   string
		config config.Config
		want   string
	}{
		{
			"invalid",
			config.Config{TunnelToken: testToken.Encode()},
			`upstream: missing; give the address of the model server, like "http://localhost:11434" (or set UPSTREAM)`,
		},
		{
			"no key file",
			config.Config{TunnelToken: testToken.Encode(), Upstream: "http://a", APIKeyFile: "/none"},
			"api_key_file: open /none: no such file or directory",
		},
		{
			"no key file of one of several",
			config.Config{
				TunnelToken: testToken.Encode(),
				Upstreams:   map[string]config.Upstream{"a": {BaseURL: "http://a/v1", APIKeyFile: "/none"}},
			},
			"upstreams.a.api_key_file: open /none: no such file or directory",
		},
	}
	for _, tt := range tests {
		if _, err := New(tt.config, Options{}); err == nil || err.Error() != tt.want {
			t.Errorf("%s: got %v", tt.name, err)
		}
	}
}

// serveModel serves a model server for an agent. h does not see the agent's own requests for
// models.
func serveModel(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Path == "/v1/models" {
			http.NotFound(w, r)
			return
		}
		h(w, r)
	}))
	t.Cleanup(server.Close)
	return server
}
