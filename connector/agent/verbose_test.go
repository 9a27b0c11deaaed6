package agent

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// A gateway that repeats its messages without end causes no log line for each.
func TestGatewayRepeatsItself(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	a := startAgent(t, g, "http://127.0.0.1:1", nil)
	s := g.session()
	for range 500 {
		if err := s.control.Send(link.Drain{}); err != nil {
			t.Fatal(err)
		}
	}
	for range 500 {
		for answered := false; !answered; {
			_, answered = wait.For(t, s.got, "the answer to a drain").(link.DrainOK)
		}
	}
	if n := strings.Count(a.log.String(), "gateway is shutting down"); n != 1 {
		t.Errorf("%d lines report that the gateway shuts down", n)
	}
}

// Fields of the gateway are shortened in the log.
func TestGatewayIsVerbose(t *testing.T) {
	g := startGateway(t)
	g.set(func() {
		g.deny = &link.Deny{Code: strings.Repeat("c", 5000), Message: "\x1b[2J" + strings.Repeat("m", 100_000), Retry: true}
	})
	a := startAgent(t, g, "http://127.0.0.1:1", nil)
	wait.Until(t, "the refusal", func() bool { return strings.Contains(a.log.String(), "refused the connector") })
	if text := a.log.String(); len(text) > 5000 || strings.Contains(text, "[2J") && strings.Contains(text, "\x1b") {
		t.Errorf("a log of %d bytes: %.300q", len(text), text)
	}
	s := &session{leg: a.legs[0]}
	if err := s.begin(link.Welcome{Edges: link.Edges{
		Edge: "a",
		List: []link.Edge{{Name: "\x1b[2J", Server: "a:1"}},
	}}); err != nil ||
		s.welcome.Edge != "" || len(s.welcome.List) != 0 || !strings.Contains(a.log.String(), "invalid edges") {
		t.Errorf("%v, welcome %+v", err, s.welcome)
	}
	if err := s.begin(link.Welcome{Session: strings.Repeat("s", 5000), Version: strings.Repeat("v", 5000)}); err != nil ||
		len(s.welcome.Session)+len(s.welcome.Version) > 500 {
		t.Errorf("%v, %d bytes of session and version", err, len(s.welcome.Session)+len(s.welcome.Version))
	}
}
