package tunnel

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// pairingDevice is a connector's real end of a pairing, under way.
type pairingDevice struct {
	pending     chan link.Pending
	interrupted chan string
	pause       time.Duration // after the last interruption
	cancel      context.CancelFunc
	token       string
	err         error
	done        chan struct{}
}

func (g *testGateway) pair(t *testing.T) *pairingDevice {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	d := &pairingDevice{
		pending: make(chan link.Pending, 100), interrupted: make(chan string, 100), cancel: cancel, done: make(chan struct{}),
	}
	go func() {
		defer close(d.done)
		d.token, d.err = agent.Pair(ctx, agent.PairOptions{
			Server: g.addr.String(), Pin: g.Pin(), Code: " " + claimCode + "\n", Name: "gpu-box",
			Upstreams: []string{"default"},
			Pending:   func(p link.Pending) { d.pending <- p },
			Interrupted: func(reason, fix string, pause time.Duration) {
				d.pause = pause
				d.interrupted <- reason + "; " + fix
			},
		})
	}()
	t.Cleanup(func() {
		cancel()
		wait.For(t, d.done, "the end of the pairing")
	})
	return d
}

func (d *pairingDevice) result(t *testing.T) (string, error) {
	t.Helper()
	wait.For(t, d.done, "the end of the pairing")
	return d.token, d.err
}

// tokenOf returns what a desk of the gateway would grant.
func (g *testGateway) tokenOf() string {
	return link.Token{Server: g.addr.String(), Pin: g.Pin(), Connector: "con_1", Secret: "secret"}.Encode()
}

// restart ends the gateway, with a word to its connectors or without, lets
// something happen, and starts it again: same address, keys and desk.
func (g *testGateway) restart(t *testing.T, desk *testDesk, kill bool, meanwhile func()) {
	t.Helper()
	if kill {
		_ = g.conn.Close() // nobody hears the good-byes any more
	}
	_ = g.Close(t.Context())
	meanwhile()
	socket, err := net.ListenUDP("udp", g.addr.(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	newGatewayOn(t, socket, g.secrets, Options{Pairing: desk})
}

// TestPairSurvivesRestarts: the device gets the decision that was made meanwhile.
func TestPairSurvivesRestarts(t *testing.T) {
	t.Parallel()
	for _, kill := range []bool{false, true} {
		name := "shut down"
		if kill {
			name = "killed"
		}
		start := func(t *testing.T) (*testGateway, *testDesk, *pairingDevice) {
			t.Parallel()
			desk := &testDesk{}
			g := newGateway(t, Options{Pairing: desk})
			d := g.pair(t)
			wait.For(t, d.pending, "the device waiting")
			return g, desk, d
		}
		t.Run(name+", nothing happened", func(t *testing.T) {
			g, desk, d := start(t)
			g.restart(t, desk, kill, func() {})
			wait.For(t, d.interrupted, "the device noticing")
			wait.For(t, d.pending, "the device waiting again")
			if a, b := desk.device(0), desk.device(1); a.Secret != b.Secret || a.Code != b.Code || a.Code != claimCode {
				t.Error("the device came back as another one")
			}
			desk.decide(Decision{TunnelToken: g.tokenOf()})
			if _, err := d.result(t); err != nil {
				t.Error(err)
			}
		})
		t.Run(name+", approved meanwhile", func(t *testing.T) {
			g, desk, d := start(t)
			g.restart(t, desk, kill, func() { desk.set(func() { desk.token = g.tokenOf() }) })
			if token, err := d.result(t); err != nil || token != g.tokenOf() {
				t.Errorf("granted %d bytes, %v", len(token), err)
			}
		})
		t.Run(name+", expired meanwhile", func(t *testing.T) {
			g, desk, d := start(t)
			g.restart(t, desk, kill, func() {
				desk.set(func() { desk.deny = &link.Deny{Code: link.DenyPairingExpired, Message: "the code has expired"} })
			})
			_, err := d.result(t)
			var deny link.Deny
			if !errors.As(err, &deny) || deny.Code != link.DenyPairingExpired {
				t.Errorf("error = %v", err)
			}
		})
	}
}

func TestPairWaitsWhileTooManyTry(t *testing.T) {
	t.Parallel()
	desk := &testDesk{deny: &link.Deny{
		Code:    link.DenyPairingLimit,
		Message: "too many wrong codes; come back in a minute", Retry: true,
	}}
	g := newGateway(t, Options{Pairing: desk})
	d := g.pair(t)
	got := wait.For(t, d.interrupted, "the reason")
	for claims, _ := desk.counts(); claims == 0; claims, _ = desk.counts() { // a slow handshake is interrupted too
		got = wait.For(t, d.interrupted, "the reason")
	}
	if got != "too many wrong codes; come back in a minute; " {
		t.Errorf("told %q", got)
	}
	// It does not knock again at once.
	if claims, _ := desk.counts(); claims != 1 || d.pause < 10*time.Second {
		t.Errorf("%d claims, the next one after %v", claims, d.pause)
	}
	d.cancel()
	if _, err := d.result(t); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v", err)
	}
}

// TestPairRefusesStrangeTokens: one of another gateway would lead there.
func TestPairRefusesStrangeTokens(t *testing.T) {
	t.Parallel()
	other := link.Token{
		Server: "127.0.0.1:1", Pin: "n4bQgYhMfWWaL-qgxVrQFaO_TxsrC4Is0V1sFbDwCgg", Connector: "con_1",
		Secret: "secret",
	}.Encode()
	for _, token := range []string{"ptt_nonsense", other} {
		desk := &testDesk{token: token}
		g := newGateway(t, Options{Pairing: desk})
		if _, err := g.pair(t).result(t); err == nil {
			t.Errorf("the token was taken")
		}
	}
}

// TestPairWithAnotherGateway: a server without the pin cannot pair a device.
func TestPairWithAnotherGateway(t *testing.T) {
	t.Parallel()
	g, other := newGateway(t, Options{Pairing: &testDesk{}}), newGateway(t, Options{Pairing: &testDesk{}})
	g.addr = other.addr
	if _, err := g.pair(t).result(t); !errors.Is(err, link.ErrPin) {
		t.Errorf("error = %v", err)
	}
}

// TestManyPairAtOnce: each device gets its decision.
func TestManyPairAtOnce(t *testing.T) {
	t.Parallel()
	desk := &testDesk{}
	g := newGateway(t, Options{Pairing: desk})
	var devices [20]*pairingDevice
	for i := range devices {
		devices[i] = g.pair(t)
	}
	for _, d := range devices {
		wait.For(t, d.pending, "a device waiting")
	}
	desk.decide(Decision{TunnelToken: g.tokenOf()})
	for _, d := range devices {
		if _, err := d.result(t); err != nil {
			t.Error(err)
		}
	}
	wait.Until(t, "all tickets are released", func() bool { claims, released := desk.counts(); return released == claims })
}
