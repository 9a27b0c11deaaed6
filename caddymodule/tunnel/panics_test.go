package tunnel

import (
	"context"
	"testing"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/caught"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// A panic where a message of a connector is handled ends that tunnel. Others stay, and subscribers
// still get events.
func TestPanicOfControlMessage(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		log := caught.New()
		g := newGateway(t, Options{Logger: log.Logger})
		g.Subscribe(func(e Event) {
			if e.Reported {
				panic(caught.Secret)
			}
		})
		bad, good := g.connect(t, "con_1", echo), g.connect(t, "con_2", echo)
		if err := bad.control.Send(link.Report{Upstreams: []link.UpstreamReport{{
			Name:      "ollama",
			Reachable: true,
		}}}); err != nil {
			t.Fatal(err)
		}
		bad.ended(t)
		log.Expect(t, "reading from a connector", 1)
		wait.Until(t, "the session is gone", func() bool { return g.held() == 1 })
		if body, err := g.do(t, "con_2", "hi"); body != "hi" || err != nil {
			t.Errorf("the other tunnel: %q, %v", body, err)
		}
		var events eventLog
		t.Cleanup(g.Subscribe(events.add))
		_ = good.conn.Close(link.CloseNone, "")
		wait.Until(t, "the end of the other tunnel is reported", func() bool { return len(events.all()) == 1 })
	})
}

// crashingDesk panics for each device.
type crashingDesk struct{}

func (crashingDesk) Claim(context.Context, Device) (Ticket, *link.Deny) { panic(caught.Secret) }

func (crashingDesk) Expects(string, func([]byte) bool) (string, bool) { return "", false }

// A panic where a hello is handled closes that connection, and stops counting it.
func TestPanicOfHello(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		log := caught.New()
		g := newGateway(t, Options{
			Logger: log.Logger, Pairing: crashingDesk{},
			Authenticate: func(ctx context.Context, id, secret string) (Connector, error) {
				if id == "con_bad" {
					panic(caught.Secret)
				}
				return allow(ctx, id, secret)
			},
		})
		for i, h := range []link.Hello{hello("con_bad"), claimOf(1)} {
			if c, err := g.dial(t, g.socket(t), h, echo); err == nil {
				t.Errorf("the hello was answered: %+v", c)
			}
			log.Expect(t, "reading a hello", i+1)
		}
		wait.Until(t, "no connection is pending", func() bool { return pendingConns(g) == 0 })
		if c := g.connect(t, "con_1", echo); c.welcome.Session == "" || len(g.waiting) != 0 {
			t.Errorf("a later connector: %+v", c.welcome)
		}
	})
}

// pendingConns returns how many connections have no accepted hello yet.
func pendingConns(g *testGateway) int {
	g.pending.mu.Lock()
	defer g.pending.mu.Unlock()
	return g.pending.unknown.Used() + g.pending.known
}
