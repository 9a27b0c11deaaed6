package agent

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// renew returns the gateway's token with another secret, and its number.
func (g *fakeGateway) renew(secret string, number int64) link.Token {
	token := g.token
	token.Secret, token.Number = secret, number
	return token
}

// offering returns the offer of a token.
func offering(token link.Token) link.Rotate {
	return link.Rotate{Number: token.Number, TunnelToken: token.Encode()}
}

// offer offers a token and returns the answer.
func (s *fakeSession) offer(t *testing.T, token link.Token) link.Rotated {
	t.Helper()
	if err := s.control.Send(offering(token)); err != nil {
		t.Fatal(err)
	}
	for {
		if answer, ok := wait.For(t, s.got, "the answer to the offer").(link.Rotated); ok {
			return answer
		}
	}
}

// kept stores a token.
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

// state returns the stored token, and the number of calls.
func (k *kept) state() (token string, calls int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.token, k.calls
}

func startKeeper(t *testing.T, g *fakeGateway, base string, k *kept) *runningAgent {
	t.Helper()
	k.token = g.token.Encode()
	return startAgent(t, g, base, func(a *instance) { a.Keep = k.keep })
}

// The token is stored before the answer. The tunnel and its request stay, and the next hello
// has the new secret.
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
	// All fields except the secret and the pins stay, even if the gateway's token differs.
	offered := g.renew("n3w", 2)
	offered.Server, offered.URL = "elsewhere.example:7443", "https://elsewhere.example"
	if answer := s.offer(t, offered); !reflect.DeepEqual(answer, link.Rotated{Number: 2, Pins: []string{offered.Pin}}) {
		t.Fatalf("answer %+v", answer)
	}
	if token, _ := k.state(); token != g.renew("n3w", 2).Encode() {
		t.Errorf("kept is %q", token)
	}
	// The same offer again, and an earlier one of another gateway.
	for _, late := range []link.Token{offered, g.renew("earlier", 1)} {
		answer := s.offer(t, late)
		if _, calls := k.state(); answer.Error != "" || answer.Number != 2 || calls != 1 {
			t.Errorf("an offer with the number %d: %+v, and it is kept %d times", late.Number, answer, calls)
		}
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
	// A reload of the stored configuration changes nothing.
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

// If the token cannot be stored, the old one stays in use.
func TestRotateRefused(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	k := &kept{err: errors.New("/etc/x.json is\tread-only " + strings.Repeat("x", 400))}
	a := startKeeper(t, g, answerWith(t, "ok"), k)
	s := g.session()
	answer := s.offer(t, g.renew("n3w", 1))
	if !strings.HasPrefix(answer.Error, "/etc/x.json isread-only") || len(answer.Error) > 256 {
		t.Errorf("answer %+v", answer)
	}
	for what, token := range map[string]link.Token{
		"another connector": {Server: g.token.Server, Pin: g.token.Pin, Connector: "con_other", Secret: "n3w", Number: 3},
		"another gateway": {
			Server: g.token.Server, Pin: testToken.Pin[1:] + "w", Connector: g.token.Connector,
			Secret: "n3w", Number: 3,
		},
		"not a secret": g.renew(strings.Repeat("x", 300), 3),
	} {
		if answer := s.offer(t, token); answer.Error == "" || answer.Number != 3 {
			t.Errorf("%s: answer %+v", what, answer)
		}
	}
	if err := s.control.Send(link.Rotate{Number: 9, TunnelToken: "ptt_nonsense"}); err != nil {
		t.Fatal(err)
	}
	if answer := wait.For(t, s.got, "an answer").(link.Rotated); answer.Error == "" ||
		strings.Contains(answer.Error, "nonsense") {
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

// An agent that cannot store tokens does not accept them.
func TestRotateWithoutAFile(t *testing.T) {
	g := startGateway(t)
	startAgent(t, g, answerWith(t, "ok"), nil)
	if answer := g.session().offer(t, g.renew("n3w", 1)); !strings.Contains(answer.Error,
		"not stored in a configuration file") {
		t.Errorf("answer %+v", answer)
	}
}

// A refusal is not final if the secret was rotated on another tunnel meanwhile.
func TestRotateWhileAHelloIsOnItsWay(t *testing.T) {
	g := startGateway(t)
	startAgent(t, g, answerWith(t, "ok"), func(a *instance) {
		a.Keep = func(string, string) error { return nil }
		g.set(func() {
			g.deny = &link.Deny{Code: link.DenyCredentials}
			g.denying = func() {
				if err := a.takeToken(a.config.credentials, offering(g.renew("n3w", 1))); err != nil {
					t.Error(err)
				}
				g.set(func() { g.deny = nil })
			}
		})
	})
	if got := g.session().hello.Secret; got != "n3w" {
		t.Errorf("the next hello has the secret %q", got)
	}
}

// The gateway receives the error if the file cannot be written.
func TestRotateOfAFile(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	path := filepath.Join(t.TempDir(), "connector.json")
	if err := os.WriteFile(path, []byte(`{"tunnel_token": "`+g.token.Encode()+`", "upstream": "http://localhost:1"}`),
		0o400); err != nil {
		t.Fatal(err)
	}
	startAgent(t, g, answerWith(t, "ok"), func(a *instance) {
		a.Keep = func(old, renewed string) error { return config.ReplaceToken(path, old, renewed) }
	})
	s := g.session()
	if answer := s.offer(t, g.renew("n3w", 1)); answer.Error != path+" is marked as read-only" &&
		!strings.HasSuffix(answer.Error, "…") {
		t.Errorf("answer %+v", answer)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if answer := s.offer(t, g.renew("n3w", 1)); answer.Error != "" {
		t.Errorf("once it can be written: %+v", answer)
	}
	if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), g.renew("n3w", 1).Encode()) {
		t.Errorf("the file is %q, %v", text, err)
	}
}

// Configurations with the same token share its rotation. An earlier token that was put back is
// used as it is: the gateway may be restored from a backup.
func TestRotateForAllConfigurations(t *testing.T) {
	with := func(token link.Token, server string) config.Config {
		return config.Config{TunnelToken: token.Encode(), Server: server, Upstream: "http://localhost:1"}
	}
	a, err := New(with(testToken, "a:1"), Options{Keep: func(string, string) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	first := a.current.Load().config
	next := func(token link.Token, server string) *configuration {
		t.Helper()
		c, err := a.newConfiguration(with(token, server), first)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	second := next(testToken, "b:1")
	fresh := testToken
	fresh.Secret = "n3w"
	if err := a.takeToken(second.credentials, offering(fresh)); err != nil {
		t.Fatal(err)
	}
	for i, c := range []*configuration{first, second} {
		if got := c.greeting().Secret; got != "n3w" {
			t.Errorf("configuration %d has the secret %q", i, got)
		}
	}
	if c := next(fresh, "a:1"); !first.servesAs(c) {
		t.Error("the rotated token leads to another tunnel")
	}
	if c := next(testToken, "a:1"); c.greeting().Secret != testToken.Secret || first.servesAs(c) {
		t.Error("the old token was not put back")
	}
}

// A new token may have another pin, if the current token already has it.
func TestTakePins(t *testing.T) {
	const (
		one   = "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"
		two   = "57DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"
		three = "67DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"
	)
	token := link.Token{Server: "gw.example.com:7443", Pin: one, Connector: "con_1", Secret: "s0"}
	c := &credentials{token: token, text: token.Encode()}
	kept := ""
	log := new(logBuffer)
	a := newAgent(Options{
		Keep:   func(_, renewed string) error { kept = renewed; return nil },
		Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	for _, step := range []struct {
		secret, pin, next string
		ok                bool
	}{
		{"s1", two, "", false},   // unknown
		{"s1", two, one, false},  // also with the known one
		{"s1", one, "", true},    // a rotation of the secret alone
		{"s1", one, two, true},   // the same secret with another pin
		{"s2", three, "", false}, // unknown
		{"s2", two, "", true},    // the switch
		{"s3", one, "", false},   // dropped
	} {
		offered := token
		offered.Secret, offered.Pin, offered.NextPin = step.secret, step.pin, step.next
		before, _ := c.current()
		err := a.takeToken(c, offering(offered))
		now, text := c.current()
		if step.ok && (err != nil || now != offered || kept != offered.Encode() || text != kept) ||
			!step.ok && (!errors.Is(err, link.ErrOtherToken) || now != before) {
			t.Errorf("%+v: %v, token %+v", step, err, now)
		}
	}
	if got := c.newest().Pins(); !slices.Equal(got, []string{two}) {
		t.Errorf("pins %q", got)
	}
	if text := log.String(); strings.Count(text, "tunnel token rotated") != 2 ||
		strings.Count(text, "new pins of the gateway stored") != 1 {
		t.Errorf("of two rotations and a change of pins the log has\n%s", text)
	}
}
