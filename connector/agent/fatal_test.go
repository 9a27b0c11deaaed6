package agent

import (
	"errors"
	"strings"
	"testing"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// denied makes a gateway refuse every token.
func denied(g *fakeGateway) {
	g.set(func() { g.deny = &link.Deny{Code: link.DenyCredentials, Message: "unknown connector"} })
}

// denyByClose makes a gateway close the connection before the connector reads the refusal, as
// with a slow machine.
func denyByClose(g *fakeGateway) {
	g.set(func() {
		g.denying = func() {
			g.set(func() {
				for _, conn := range g.conns {
					conn.CloseWithError(quic.ApplicationErrorCode(link.CloseDenied), g.deny.Reason())
				}
			})
		}
	})
}

// TestRefusalForNow: a temporary refusal does not become final if its message is lost.
func TestRefusalForNow(t *testing.T) {
	g := startGateway(t)
	g.set(func() { g.deny = &link.Deny{Code: link.DenyUnavailable, Message: "starting", Retry: true} })
	denyByClose(g)
	a := startAgent(t, g, "http://127.0.0.1:1", nil)
	wait.Until(t, "a hello", func() bool { return g.count() > 0 })
	g.set(func() { g.deny = nil })
	select {
	case <-g.sessions:
	case err := <-a.result:
		a.result <- err
		t.Errorf("Run returned %v", err)
	}
}

func TestFatalEnds(t *testing.T) {
	for _, tt := range []struct {
		name        string
		setup       func(g *fakeGateway)
		online      func(g *fakeGateway) // once the tunnel is up
		reason, fix string               // expected parts
	}{
		{
			name: "refused from the start", setup: denied,
			reason: "the gateway refused the connector: unknown connector (bad_credentials)",
			fix:    "get a new token on the gateway's machine with `caddy gateway connector rotate NAME`",
		},
		{
			name: "refused by the close", setup: func(g *fakeGateway) {
				denied(g)
				denyByClose(g)
			},
			reason: "the gateway refused the connector: unknown connector (bad_credentials)",
			fix:    "get a new token on the gateway's machine with `caddy gateway connector rotate NAME`",
		},
		{
			name: "another gateway from the start", setup: func(g *fakeGateway) { g.token.Pin = testToken.Pin },
			reason: "the gateway's identity does not match the pin in the tunnel token",
			fix:    "check `server`",
		},
		{
			name: "removed", online: func(g *fakeGateway) { g.session().close(link.CloseRemoved) },
			reason: "the gateway closed the tunnel: removed",
			fix:    "the connector was removed on the gateway; create a new one",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := startGateway(t)
			if tt.setup != nil {
				tt.setup(g)
			}
			a := startAgent(t, g, "http://127.0.0.1:1", nil)
			if tt.online != nil {
				tt.online(g)
			}
			err := wait.For(t, a.result, "the agent's end")
			var fatal *FatalError
			if !errors.As(err, &fatal) || !strings.Contains(fatal.Reason, tt.reason) || !strings.HasPrefix(fatal.Fix, tt.fix) ||
				err.Error() != fatal.Reason+"; "+fatal.Fix {
				t.Fatalf("Run returned %v", err)
			}
			if log := a.log.String(); !strings.Contains(log, "level=ERROR msg=\"connector stopped\" reason=") ||
				!strings.Contains(log, "fix=") {
				t.Errorf("log %s", log)
			}
			if s := a.Status(); s.State != StateStopped || s.Problem == nil || s.Problem.Reason != fatal.Reason ||
				s.Problem.Fix != fatal.Fix {
				t.Errorf("status %+v, problem %+v", s, s.Problem)
			}
			if n := g.count(); n > 1 {
				t.Errorf("%d hellos", n)
			}
		})
	}
}

// TestRefusedAfterATunnel: a gateway that was restored from a backup may not know the connector
// for a while, or have another identity.
func TestRefusedAfterATunnel(t *testing.T) {
	for name, refuse := range map[string]func(g *fakeGateway){
		"refused": denied,
		"another gateway": func(g *fakeGateway) {
			identity, err := link.NewIdentity()
			if err != nil {
				t.Fatal(err)
			}
			g.identity = identity
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := startGateway(t)
			own := g.identity
			a := startAgent(t, g, "http://127.0.0.1:1", nil)
			s := g.session()
			address := g.token.Server
			restart := func() {
				g.kill()
				g.listen(address)
			}
			refuse(g)
			s.close(link.CloseShutdown)
			restart()
			wait.Until(t, "the refusal", func() bool {
				p := a.Status().Problem
				return a.Status().State == StateWaiting && p != nil && strings.Contains(p.Fix, "get a new token")
			})
			g.set(func() { g.deny = nil })
			g.identity = own
			restart()
			g.sessionAfterWaking(a)
			select {
			case err := <-a.result:
				t.Fatalf("Run returned %v", err)
			default:
			}
		})
	}
}
