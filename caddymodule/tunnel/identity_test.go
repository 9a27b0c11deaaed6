package tunnel

import (
	"context"
	"crypto/sha256"
	"errors"
	"strings"
	"testing"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/link"
)

// With another identity, all tunnels end with the reason, and only handshakes with its pin succeed.
func TestSetIdentity(t *testing.T) {
	hash := sha256.Sum256([]byte("s3cret"))
	g := newGateway(t, Options{Preauthenticate: func(_ string, match func([]byte) bool) bool { return match(hash[:]) }})
	c := g.connect(t, "con_1", named("a"))
	former := g.Pin()
	if err := g.SetIdentity([]byte("x")); err == nil || g.Pin() != former {
		t.Errorf("a damaged key: %v, pin %s", err, g.Pin())
	}
	if err := g.SetIdentity(g.secrets.Identity); err != nil || g.Pin() != former {
		t.Errorf("the same key: %v, pin %s", err, g.Pin())
	}
	if body, err := g.do(t, "con_1", ""); body != "a" || err != nil {
		t.Errorf("before the change: %q, %v", body, err)
	}
	key, err := link.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.SetIdentity(key); err != nil || g.Pin() == former {
		t.Fatalf("pin %s, %v", g.Pin(), err)
	}
	if why := c.denied(t); why.Code != link.DenyCredentials || !strings.Contains(why.Message, "new identity") {
		t.Errorf("closed with %+v", why)
	}
	if _, ok := g.Session("con_1"); ok {
		t.Error("there still is a session")
	}
	for pin, want := range map[string]string{former: "", g.Pin(): "con_1"} {
		token := link.Token{Pin: pin, Connector: "con_1", Secret: "s3cret"}
		if got := g.preauthenticate(link.Preauth(token)); got != want {
			t.Errorf("a preauthentication: %q, want %q", got, want)
		}
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
}

// A hello on a connection that was established with the former identity gets no tunnel.
func TestSetIdentityBeforeTheHello(t *testing.T) {
	g := newGateway(t, Options{})
	conn, err := quic.DialAddr(t.Context(), g.addr.String(), link.ConnectorTLS("", g.Pin()), link.ConnectorQUIC(0))
	if err != nil {
		t.Fatal(err)
	}
	key, err := link.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.SetIdentity(key); err != nil {
		t.Fatal(err)
	}
	stream, err := conn.OpenStream()
	if err != nil {
		t.Fatal(err)
	}
	if err := link.NewControl(stream).Send(hello("con_1")); err != nil {
		t.Fatal(err)
	}
	<-conn.Context().Done()
	if why, ok := link.Denied(context.Cause(conn.Context())); !ok || !strings.Contains(why.Message, "new identity") {
		t.Errorf("closed with %v", context.Cause(conn.Context()))
	}
}
