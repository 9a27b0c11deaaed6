package tunnel

import (
	"crypto/sha256"
	"errors"
	"slices"
	"testing"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// With another identity, tunnels stay, and only handshakes with its pin succeed.
func TestSetIdentity(t *testing.T) {
	g := newGateway(t, Options{})
	g.connect(t, "con_1", newGate())
	session := g.mustSession(t, "con_1")
	former := g.Pin()
	key, err := link.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.SetIdentity(Identity{Key: []byte("x")}); err == nil || g.Pin() != former {
		t.Errorf("a damaged key: %v, pin %s", err, g.Pin())
	}
	if err := g.SetIdentity(Identity{Key: key, FormerPin: former}); err != nil {
		t.Fatal(err)
	}
	if g.Pin() == former || g.NextPin() != "" {
		t.Errorf("pins %s and %q", g.Pin(), g.NextPin())
	}
	dial := func(pin string) error {
		conn, err := quic.DialAddr(t.Context(), g.addr.String(), link.ConnectorTLS("", pin), link.ConnectorQUIC(0))
		if err == nil {
			_ = conn.CloseWithError(0, "")
		}
		return err
	}
	if err := dial(former); !errors.Is(err, link.ErrPin) {
		t.Errorf("with the former pin: %v", err)
	}
	if err := dial(g.Pin()); err != nil {
		t.Errorf("with the new pin: %v", err)
	}
	if now, ok := g.Session("con_1"); !ok || now != session || !session.usable() {
		t.Error("the tunnel has ended")
	}
}

// Both pins are good for a preauthentication: a connector computes it with the pin of
// its token, which it may have had before the switch.
func TestPreauthOfFormerPin(t *testing.T) {
	hash := sha256.Sum256([]byte("s3cret"))
	g := newGateway(t, Options{Preauthenticate: func(_ string, match func([]byte) bool) bool { return match(hash[:]) }})
	former := g.Pin()
	key, err := link.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	token := link.Token{Pin: former, Connector: "con_1", Secret: "s3cret"}
	for _, i := range []struct {
		identity Identity
		want     string
	}{{Identity{Key: key, FormerPin: former}, "con_1"}, {Identity{Key: key}, ""}} {
		if err := g.SetIdentity(i.identity); err != nil {
			t.Fatal(err)
		}
		if got := g.preauthenticate(link.Preauth(token)); got != i.want {
			t.Errorf("former pin %q: %q, want %q", i.identity.FormerPin, got, i.want)
		}
	}
}

// A connector with other pins than the gateway is offered a token, once for the same
// pins; one that supports a single pin never.
func TestOfferOfPins(t *testing.T) {
	r := newRotation()
	g := newGateway(t, Options{Rotation: r})
	g.connect(t, "con_old", newGate())
	pin := g.Pin()
	greeting := hello("con_1")
	greeting.Pins = []string{pin}
	c, err := g.dial(t, g.socket(t), greeting, newGate())
	if err != nil {
		t.Fatal(err)
	}
	const next = "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"
	set := func() {
		t.Helper()
		i := g.proof.Load().Identity
		i.NextPin = next
		if err := g.SetIdentity(i); err != nil {
			t.Fatal(err)
		}
	}
	set()
	offer, ok := c.next(t).(link.Rotate)
	if !ok || offer.Number != 1 {
		t.Fatalf("received %v", offer)
	}
	r.mu.Lock()
	r.offer = nil
	r.mu.Unlock()
	if err := c.control.Send(link.Rotated{Number: offer.Number, Pins: []string{pin, next}}); err != nil {
		t.Fatal(err)
	}
	wait.For(t, r.answers, "the answer")
	wait.Until(t, "the pin is confirmed", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return slices.Equal(r.confirmed, []string{"con_1:" + next})
	})
	set()
	c.quiet(t, r)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.renewed, []string{"con_1"}) {
		t.Errorf("renewed: %v", r.renewed)
	}
}
