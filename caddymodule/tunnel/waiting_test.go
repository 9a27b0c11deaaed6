package tunnel

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

const claimCode = "PAIR-7K2M-9QXV"

// deviceSecret returns the secret of a device with a number.
func deviceSecret(n byte) string { return strings.Repeat("s3cretDEV", 4) + "abcdef" + string('A'+n) }

func claimOf(n byte) link.Hello {
	return link.Hello{
		Claim: claimCode, Secret: deviceSecret(n), Instance: "i", Name: "gpu-box", Version: "1.2", OS: "linux/amd64",
		Upstreams: []string{"default"},
	}
}

// testDesk is a Pairing that a test decides by hand. It outlives hubs.
type testDesk struct {
	mu       sync.Mutex
	deny     *link.Deny // for every claim, if set
	token    string     // what devices were granted; "" none
	live     []chan Decision
	devices  []Device
	released int
}

// Expects implements Pairing: the code is that of the tests.
func (d *testDesk) Expects(_ string, match func(codeHash []byte) bool) (string, bool) {
	hash := sha256.Sum256([]byte(claimCode))
	return "pair_1", match(hash[:])
}

func (d *testDesk) Claim(_ context.Context, device Device) (Ticket, *link.Deny) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.devices = append(d.devices, device)
	if d.deny != nil {
		return Ticket{}, d.deny
	}
	decided := make(chan Decision, 1)
	if d.token != "" {
		decided <- Decision{TunnelToken: d.token}
	}
	d.live = append(d.live, decided)
	return Ticket{
		ID: "pair_1", Fingerprint: link.Fingerprint("pin", device.Secret), ExpiresAt: time.Now().Add(time.Minute),
		Decided: decided,
		Release: sync.OnceFunc(func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.released++
		}),
	}, nil
}

// decide sends the decision to all waiting devices, and to those that are dialing again.
func (d *testDesk) decide(decision Decision) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.deny, d.token = decision.Deny, decision.TunnelToken
	for _, c := range d.live {
		select {
		case c <- decision:
		default: // it has one
		}
	}
}

// device returns the device of claim i.
func (d *testDesk) device(i int) Device {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.devices[i]
}

func (d *testDesk) counts() (claims, released int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.devices), d.released
}

func (d *testDesk) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// seats returns how many devices wait.
func (g *testGateway) seats() int {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return len(g.waiting)
}

// pend sends a hello with a claim and waits for pending.
func (g *testGateway) pend(t *testing.T, n byte) *testConnector {
	t.Helper()
	c, err := g.dial(t, g.socket(t), claimOf(n), nil)
	if err != nil {
		t.Fatal(err)
	}
	if p, ok := c.next(t).(link.Pending); !ok || p.Fingerprint != link.Fingerprint("pin", deviceSecret(n)) ||
		time.Until(p.ExpiresAt) < 30*time.Second {
		t.Fatalf("the answer to the claim is %+v", p)
	}
	return c
}

func TestDeviceIsGranted(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		var log syncBuffer
		desk := &testDesk{}
		g := newGateway(t, Options{
			Pairing: desk,
			Logger:  slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		})
		c := g.pend(t, 0)

		if got := desk.device(0); got.Code != claimCode || got.Secret != deviceSecret(0) || got.Hostname != "gpu-box" ||
			got.OS != "linux/amd64" ||
			got.Version != "1.2" || got.Remote != "10.0.1.1" || len(got.Upstreams) != 1 {
			t.Errorf("the desk was told %+v", got)
		}
		// A device that waits is no tunnel, but its pings are answered.
		if len(g.Sessions()) != 0 {
			t.Errorf("sessions: %+v", g.Sessions())
		}
		if err := c.control.Send(link.Ping{}); err != nil {
			t.Fatal(err)
		}
		if p, ok := c.next(t).(link.Pong); !ok || p.HeartbeatMillis <= 0 {
			t.Errorf("the answer to a ping is %+v", p)
		}

		desk.decide(Decision{TunnelToken: "ptt_s3cret"})
		if m := c.next(t); m != (link.Grant{TunnelToken: "ptt_s3cret"}) {
			t.Errorf("the decision is %+v", m)
		}
		_ = c.conn.Close(link.CloseNone, "")
		wait.Until(t, "the ticket is released", func() bool { _, released := desk.counts(); return released == 1 })
		if s := log.String(); strings.Contains(s, "s3cret") || strings.Contains(s, "PAIR-") {
			t.Errorf("the log tells a secret: %s", s)
		}
	})
}

func TestDeviceIsDenied(t *testing.T) {
	for _, test := range []struct {
		name  string
		desk  *testDesk // nil: none
		hello func(*link.Hello)
		code  string
	}{
		{"no pairing here", nil, nil, link.DenyPairingOff},
		{"unknown", &testDesk{deny: &link.Deny{Code: link.DenyPairingUnknown}}, nil, link.DenyPairingUnknown},
		{"used", &testDesk{deny: &link.Deny{Code: link.DenyPairingUsed}}, nil, link.DenyPairingUsed},
		{"bad secret", &testDesk{}, func(h *link.Hello) { h.Secret = "short" }, link.DenyHello},
		{"an id as well", &testDesk{}, func(h *link.Hello) { h.Connector = "con_1" }, link.DenyHello},
	} {
		t.Run(test.name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
				o := Options{}
				if test.desk != nil {
					o.Pairing = test.desk
				}
				g := newGateway(t, o)
				hello := claimOf(0)
				if test.hello != nil {
					test.hello(&hello)
				}
				c, err := g.dial(t, g.socket(t), hello, nil)
				var deny link.Deny
				if !errors.As(err, &deny) || deny.Code != test.code || deny.Retry {
					t.Fatalf("error = %v, want %s", err, test.code)
				}
				if code := c.ended(t); code != link.CloseDenied {
					t.Errorf("closed with %s", code)
				}
				if g.seats() != 0 {
					t.Error("the refused device has a seat")
				}
			})
		})
	}
}

// TestDecisionAgainstADevice: each ends the connection in its way.
func TestDecisionAgainstADevice(t *testing.T) {
	desk := &testDesk{}
	g := newGateway(t, Options{Pairing: desk})
	c := g.pend(t, 0)
	desk.decide(Decision{Deny: &link.Deny{Code: link.DenyPairingDenied, Message: "no"}})
	if d, ok := c.next(t).(link.Deny); !ok || d.Code != link.DenyPairingDenied {
		t.Errorf("got %+v", d)
	}
	if code := c.ended(t); code != link.CloseDenied {
		t.Errorf("closed with %s", code)
	}

	// A desk that closes for a reload has decided nothing.
	desk.set(func() { desk.deny = nil })
	c = g.pend(t, 1)
	desk.set(func() { close(desk.live[1]) })
	if code := c.ended(t); code != link.CloseShutdown {
		t.Errorf("closed with %s", code)
	}
	wait.Until(t, "both are released", func() bool { _, released := desk.counts(); return released == 2 })
}

func TestWaitingDeviceGoes(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		desk := &testDesk{}
		g := newGateway(t, Options{Pairing: desk})
		g.limitPending(1)
		first := g.pend(t, 0)
		// Who waits for a person is not counted among those without a hello.
		second := g.pend(t, 1)
		_ = first.conn.Close(link.CloseNone, "")
		wait.Until(t, "the first is released", func() bool { _, released := desk.counts(); return released == 1 })

		if _, err := second.stream.Write([]byte("\xff\xff\xff\xff")); err != nil {
			t.Fatal(err)
		}
		if code := second.ended(t); code != link.CloseProtocol {
			t.Errorf("closed with %s", code)
		}
		wait.Until(t, "no seat is taken", func() bool { return g.seats() == 0 })
	})
}

func TestTooManyDevicesWait(t *testing.T) {
	desk := &testDesk{}
	g := newGateway(t, Options{Pairing: desk})
	others := make([]*waitingDevice, maxWaiting)
	for i := range others {
		others[i] = new(waitingDevice)
		if deny := g.addWaiting(others[i]); deny != nil {
			t.Fatalf("device %d: %v", i, deny)
		}
	}
	// The seats taken by hand have no connection to close.
	defer func() {
		for _, w := range others {
			g.removeWaiting(w)
		}
	}()
	_, err := g.dial(t, listenLoopback(t), claimOf(0), nil)
	var deny link.Deny
	if !errors.As(err, &deny) || deny.Code != link.DenyPairingLimit || !deny.Retry ||
		!strings.Contains(deny.Message, "15 minutes") {
		t.Errorf("error = %v", err)
	}
	if claims, _ := desk.counts(); claims != 0 {
		t.Error("the desk was asked all the same")
	}
	g.removeWaiting(others[0])
	g.pend(t, 0)
}

func TestCloseSendsDevicesAway(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		desk := &testDesk{}
		g := newGateway(t, Options{Pairing: desk})
		c := g.pend(t, 0)
		if err := g.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if code := c.ended(t); code != link.CloseShutdown {
			t.Errorf("closed with %s", code)
		}
		if _, released := desk.counts(); released != 1 {
			t.Errorf("%d tickets were released before Close returned", released)
		}
	})
}

// TestTalkativeDevice: one that waits cannot make the gateway keep what it says.
func TestTalkativeDevice(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		g := newGateway(t, Options{Pairing: &testDesk{}})
		c := g.pend(t, 0)
		// It is cut in the middle, so that sending it may fail.
		_ = c.control.Send(link.Hello{Upstreams: []string{strings.Repeat("x", 8<<10)}})
		if code := c.ended(t); code != link.CloseProtocol {
			t.Errorf("closed with %v", code)
		}
	})
}
