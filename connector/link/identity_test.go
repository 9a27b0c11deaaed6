package link

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
)

func testToken(t testing.TB) Token {
	t.Helper()
	_, pin := newTestIdentity(t)
	return Token{Server: "gw.example.com:7443", Pin: pin, Connector: "con_1", Secret: "s3cret"}
}

func TestToken(t *testing.T) {
	want := testToken(t)
	text := want.Encode()
	if !strings.HasPrefix(text, "ptt_") {
		t.Errorf("token %q", text)
	}
	got, err := ParseToken(" " + text + "\n")
	if err != nil || got != want {
		t.Errorf("parsed %v, %v", got, err)
	}
}

func TestTokensThatAreNone(t *testing.T) {
	good := testToken(t)
	texts := []string{
		"", "x", "ptt_", "ptt_%", "ptt_e30", good.Encode()[:40], good.Encode() + "=",
		"ptt_" + strings.Repeat("a", maxToken+1), strings.ToUpper(good.Encode()),
	}
	for _, change := range []func(*Token){
		func(tok *Token) { tok.Server = "no port" },
		func(tok *Token) { tok.Server = "host:" },
		func(tok *Token) { tok.Pin = "short" },
		func(tok *Token) { tok.Connector = "" },
		func(tok *Token) { tok.Secret = "" },
	} {
		tok := good
		change(&tok)
		texts = append(texts, tok.Encode())
	}
	for _, text := range texts {
		_, err := ParseToken(text)
		if err == nil {
			t.Errorf("%q was accepted", text)
		} else if strings.Contains(err.Error(), "s3cret") || len(text) > 8 && strings.Contains(err.Error(), text[4:]) {
			t.Errorf("the error shows the token: %v", err)
		}
	}
}

func FuzzToken(f *testing.F) {
	f.Add(testToken(f).Encode())
	f.Add("ptt_e30")
	f.Fuzz(func(t *testing.T, text string) {
		tok, err := ParseToken(text)
		if err != nil {
			return
		}
		if again, err := ParseToken(tok.Encode()); err != nil || again != tok {
			t.Fatalf("parsed again: %v", err)
		}
	})
}

// TestIdentityLasts: the pin is that of the key, not of the certificate.
func TestIdentityLasts(t *testing.T) {
	key, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	_, a, _ := Identity(key)
	_, b, _ := Identity(key)
	if a != b || CheckPin(a) != nil {
		t.Errorf("pins %q and %q", a, b)
	}
	if _, _, err := Identity([]byte("x")); err == nil {
		t.Error("a damaged key was accepted")
	}
	_, other, _ := ed25519.GenerateKey(rand.Reader)
	der, _ := x509.MarshalPKCS8PrivateKey(other)
	if _, _, err := Identity(der); err == nil {
		t.Error("a key of another kind was accepted")
	}
}

// dialQUIC connects over loopback.
func dialQUIC(t *testing.T, gateway, connector *tls.Config) error {
	t.Helper()
	socket := listenLoopback(t)
	defer socket.Close()
	l, err := quic.Listen(socket, gateway, GatewayQUIC())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err = quic.DialAddr(ctx, socket.LocalAddr().String(), connector, ConnectorQUIC(0))
	return err
}

// TestWrongPin: a connector does not speak to a gateway that it does not know.
func TestWrongPin(t *testing.T) {
	cert, _ := newTestIdentity(t)
	wantError(t, dialQUIC(t, GatewayTLS(cert), ConnectorTLS("", testToken(t).Pin)), ErrPin)
}

// TestWrongClock: a tunnel comes up, whatever the clocks of its ends say. A pin has no time.
func TestWrongClock(t *testing.T) {
	const decades = 60 * 365 * 24 * time.Hour
	cert, pin := newTestIdentity(t)
	for _, off := range [][2]time.Duration{{0, -decades}, {0, decades}, {-decades, 0}, {decades, 0}, {-decades, decades}} {
		gateway, connector := GatewayTLS(cert), ConnectorTLS("", pin)
		gateway.Time = func() time.Time { return time.Now().Add(off[0]) }
		connector.Time = func() time.Time { return time.Now().Add(off[1]) }
		if err := dialQUIC(t, gateway, connector); err != nil {
			t.Errorf("%v: %v", off, err)
		}
	}
}

func TestCodes(t *testing.T) {
	for code, want := range map[Code]error{
		CodeNone: ErrInternal, CodeCancelled: ErrCancelled, CodeSilent: ErrSilent, 4711: ErrInternal,
	} {
		wantError(t, code.Err(), want)
	}
	for code, want := range map[CloseCode]string{CloseNone: "closed", CloseLost: "lost", 99: "close_99"} {
		if code.String() != want {
			t.Errorf("%d is %q", code, code)
		}
	}
	remote := &quic.ApplicationError{Remote: true, ErrorCode: quic.ApplicationErrorCode(CloseReplaced)}
	if code, ok := CloseReason(remote); code != CloseReplaced || !ok {
		t.Errorf("reason %v, %v", code, ok)
	}
	for _, deny := range []Deny{
		{Code: DenyCredentials, Message: "removed: pair again"},
		{Code: DenyUnavailable, Message: "starting", Retry: true},
		{Code: DenyPairingLimit, Message: "later", Retry: true},
		{Code: DenyPairingUsed, Message: strings.Repeat("x", 200)},
	} {
		if got, ok := Denied(&quic.ApplicationError{Remote: true, ErrorCode: 4, ErrorMessage: deny.Reason()}); got != deny ||
			!ok {
			t.Errorf("%+v came back as %+v, %v", deny, got, ok)
		}
	}
	if _, ok := Denied(remote); ok {
		t.Error("a tunnel that was replaced was denied")
	}
	if got := (Deny{Code: DenyHello, Message: strings.Repeat("x", 9000)}).Reason(); len(got) > 300 {
		t.Errorf("a reason of %d bytes has to fit into a packet", len(got))
	}
	for _, err := range []error{&quic.ApplicationError{ErrorCode: 1}, errors.New("x"), nil} {
		if _, ok := CloseReason(err); ok {
			t.Errorf("%v has a close reason", err)
		}
	}
}
