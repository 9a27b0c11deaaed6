package agent

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/link"
)

// renew returns the gateway's token with another secret.
func (g *fakeGateway) renew(secret string) link.Token {
	token := g.token
	token.Secret = secret
	return token
}

// offer offers a token and returns the answer.
func (s *fakeSession) offer(t *testing.T, id string, token link.Token) link.Rotated {
	t.Helper()
	if err := s.control.Send(link.Rotate{ID: id, TunnelToken: token.Encode()}); err != nil {
		t.Fatal(err)
	}
	for {
		if answer, ok := receive(t, s.got, "the answer to the offer").(link.Rotated); ok {
			return answer
		}
	}
}

// kept is a place for a token.
type kept struct {
	mu    sync.Mutex
	token string
	err   error
	calls int
}

func (k *kept) keep(old, renewed string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls++
	if k.err != nil {
		return k.err
	}
	if old != k.token {
		return errors.New("another token is kept")
	}
	k.token = renewed
	return nil
}

// state returns the token that is kept, and how often one was to be.
func (k *kept) state() (token string, calls int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.token, k.calls
}

func startKeeper(t *testing.T, g *fakeGateway, base string, k *kept) *runningAgent {
	t.Helper()
	k.token = g.token.Encode()
	return startAgent(t, g, base, func(a *Agent) { a.Keep = k.keep })
}

// The token is kept before the answer; the tunnel and a request on it stay, and
// the next hello has the new secret.
func TestRotate(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	release := make(chan struct{})
	box := serveModel(t, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "first ")
		http.NewResponseController(w).Flush()
		<-release
		io.WriteString(w, "last")
	})
	k := &kept{}
	a := startKeeper(t, g, box.URL, k)
	s := g.session()
	running, err := s.roundTrip(post(t.Context(), "{}"))
	if err != nil {
		t.Fatal(err)
	}
	// All but the secret stays as it was, also where the gateway's token differs.
	offered := g.renew("n3w")
	offered.Server, offered.URL = "elsewhere.example:7443", "https://elsewhere.example"
	if answer := s.offer(t, "r1", offered); answer != (link.Rotated{ID: "r1"}) {
		t.Fatalf("answer %+v", answer)
	}
	if token, _ := k.state(); token != g.renew("n3w").Encode() {
		t.Errorf("kept is %q", token)
	}
	answer := s.offer(t, "r1", offered)
	if _, calls := k.state(); answer.Error != "" || calls != 1 {
		t.Errorf("the same again: %+v, and it is kept %d times", answer, calls)
	}
	close(release)
	body, err := io.ReadAll(running.Body)
	if err != nil || string(body) != "first last" {
		t.Errorf("the request got %q, %v", body, err)
	}
	running.Body.Close()
	if got := a.Status().Tunnels; got != 1 {
		t.Errorf("there were %d tunnels", got)
	}
	// The configuration that was read again is the one in use.
	c := g.present(map[string]string{"box": box.URL})
	c.TunnelToken, _ = k.state()
	if err := a.Reload(c); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(a.log.String(), "tunnel=kept") {
		t.Error("a reload of the new token renews the tunnel")
	}
	s.close(link.CloseShutdown)
	if hello := g.session().hello; hello.Secret != "n3w" || hello.Connector != g.token.Connector {
		t.Errorf("the next hello is %+v with the secret %q", hello, hello.Secret)
	}
	if strings.Contains(a.log.String(), "n3w") {
		t.Error("the log contains the new secret")
	}
}

// What cannot be kept leaves the old token in use.
func TestRotateRefused(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	k := &kept{err: errors.New("/etc/x.json is\tread-only " + strings.Repeat("x", 400))}
	a := startKeeper(t, g, answerWith(t, "ok"), k)
	s := g.session()
	answer := s.offer(t, "r1", g.renew("n3w"))
	if !strings.HasPrefix(answer.Error, "/etc/x.json isread-only") || len(answer.Error) > 256 {
		t.Errorf("answer %+v", answer)
	}
	for what, token := range map[string]link.Token{
		"another connector": {Server: g.token.Server, Pin: g.token.Pin, Connector: "con_other", Secret: "n3w"},
		"another gateway":   {Server: g.token.Server, Pin: testToken.Pin[1:] + "w", Connector: g.token.Connector, Secret: "n3w"},
		"not a secret":      g.renew(strings.Repeat("x", 300)),
	} {
		if answer := s.offer(t, what, token); answer.Error == "" || answer.ID != what {
			t.Errorf("%s: answer %+v", what, answer)
		}
	}
	if err := s.control.Send(link.Rotate{ID: "r9", TunnelToken: "ptt_nonsense"}); err != nil {
		t.Fatal(err)
	}
	if answer := receive(t, s.got, "an answer").(link.Rotated); answer.Error == "" || strings.Contains(answer.Error, "nonsense") {
		t.Errorf("answer to nonsense %+v", answer)
	}
	if _, calls := k.state(); calls != 1 {
		t.Errorf("it was tried %d times to keep a token", calls)
	}
	s.close(link.CloseShutdown)
	if hello := g.session().hello; hello.Secret != g.token.Secret {
		t.Error("the next hello has a secret that was not kept")
	}
	if log := a.log.String(); !strings.Contains(log, "connector rotate NAME --show") || strings.Contains(log, "n3w") {
		t.Error("the log has no fix, or a secret")
	}
}

// Without a place for it a token is not taken.
func TestRotateWithoutAFile(t *testing.T) {
	g := startGateway(t)
	startAgent(t, g, answerWith(t, "ok"), nil)
	if answer := g.session().offer(t, "r1", g.renew("n3w")); !strings.Contains(answer.Error, "not stored in a configuration file") {
		t.Errorf("answer %+v", answer)
	}
}

// A configuration that waits to be taken, since its gateway is away, has the new
// token too.
func TestRotateWhileAReloadWaits(t *testing.T) {
	g := startGateway(t)
	k := &kept{}
	a := startKeeper(t, g, answerWith(t, "ok"), k)
	s := g.session()
	c := g.present(map[string]string{"box": answerWith(t, "new")})
	c.Server = "127.0.0.1:1"
	if err := a.Reload(c); err != nil {
		t.Fatal(err)
	}
	if answer := s.offer(t, "r1", g.renew("n3w")); answer.Error != "" {
		t.Fatalf("answer %+v", answer)
	}
	next := a.next().config
	if hello := next.greeting(); hello.Secret != "n3w" {
		t.Errorf("the pending configuration has the secret %q", hello.Secret)
	}
}

// A hello that is refused because its secret was rotated on another tunnel at the
// same time does not refuse the connector.
func TestRotateWhileAHelloIsOnItsWay(t *testing.T) {
	g := startGateway(t)
	startAgent(t, g, answerWith(t, "ok"), func(a *Agent) {
		a.Keep = func(string, string) error { return nil }
		g.deny = &link.Deny{Code: link.DenyCredentials}
		g.denying = func() {
			if err := a.takeToken(a.current.credentials, g.renew("n3w").Encode()); err != nil {
				t.Error(err)
			}
			g.set(func() { g.deny = nil })
		}
	})
	if got := g.session().hello.Secret; got != "n3w" {
		t.Errorf("the next hello has the secret %q", got)
	}
}

// A file that cannot be written is reported to the gateway.
func TestRotateOfAFile(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	path := filepath.Join(t.TempDir(), "connector.json")
	if err := os.WriteFile(path, []byte(`{"tunnel_token": "`+g.token.Encode()+`", "upstream": "http://localhost:1"}`), 0o400); err != nil {
		t.Fatal(err)
	}
	startAgent(t, g, answerWith(t, "ok"), func(a *Agent) {
		a.Keep = func(old, renewed string) error { return config.ReplaceToken(path, old, renewed) }
	})
	s := g.session()
	if answer := s.offer(t, "r1", g.renew("n3w")); answer.Error != path+" is marked as read-only" && !strings.HasSuffix(answer.Error, "…") {
		t.Errorf("answer %+v", answer)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if answer := s.offer(t, "r1", g.renew("n3w")); answer.Error != "" {
		t.Errorf("once it can be written: %+v", answer)
	}
	if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), g.renew("n3w").Encode()) {
		t.Errorf("the file is %q, %v", text, err)
	}
}

// Configurations with the same token share its rotation. A token that was put back
// after it was rotated is used as it is: the gateway may come from a backup.
func TestRotateForAllConfigurations(t *testing.T) {
	with := func(token link.Token, server string) config.Config {
		return config.Config{TunnelToken: token.Encode(), Server: server, Upstream: "http://localhost:1"}
	}
	a, err := New(with(testToken, "a:1"), Options{Keep: func(string, string) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	fresh := testToken
	fresh.Secret = "n3w"
	if err := a.Reload(with(testToken, "b:1")); err != nil {
		t.Fatal(err)
	}
	tried := a.next().config
	if err := a.Reload(with(testToken, "c:1")); err != nil {
		t.Fatal(err)
	}
	if err := a.takeToken(tried.credentials, fresh.Encode()); err != nil {
		t.Fatal(err)
	}
	newest := a.next().config
	for i, c := range []*configuration{a.current, tried, newest} {
		if got := c.greeting().Secret; got != "n3w" {
			t.Errorf("configuration %d has the secret %q", i, got)
		}
	}
	if err := a.Reload(with(fresh, "a:1")); err != nil {
		t.Fatal(err)
	}
	if c := a.next().config; !c.samePeer(a.current) {
		t.Error("the rotated token leads to another peer")
	}
	if err := a.Reload(with(testToken, "a:1")); err != nil {
		t.Fatal(err)
	}
	if c := a.next().config; c.greeting().Secret != testToken.Secret || c.samePeer(a.current) {
		t.Error("the old token was not put back")
	}
}
