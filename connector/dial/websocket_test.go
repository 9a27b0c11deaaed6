package dial

import (
	"testing"

	"github.com/postern-dev/postern/connector/link"
)

func TestWebSocketAddress(t *testing.T) {
	for _, test := range []struct{ base, server, want string }{
		{"https://gw.example.com", "udp.example.com:7443", "https://gw.example.com" + link.WebSocketPath},
		{"http://localhost:8080/", "localhost:7443", "http://localhost:8080" + link.WebSocketPath},
		{"", "gw.example.com:7443", "https://gw.example.com" + link.WebSocketPath},
		{"", "[2001:db8::1]:7443", "https://[2001:db8::1]" + link.WebSocketPath},
	} {
		if got := NewWebSocket(Target{URL: test.base, Server: test.server}).Address; got != test.want {
			t.Errorf("%+v: %s", test, got)
		}
	}
}

// Who can read the preauthentication of a pairing code can find the code.
func TestPreauthOfDevice(t *testing.T) {
	const code = "PAIR-7K3M-Q9TX"
	device := link.Token{Pin: "pin"}
	connector := link.Token{Connector: "con_1", Secret: "secret", Pin: "pin"}
	for _, test := range []struct {
		base, claim string
		token       link.Token
		skip        bool
		want        string
	}{
		{"https://gw.example.com", code, device, false, link.PreauthClaim("pin", code)},
		{"https://gw.example.com", code, device, true, ""},
		{"http://gw.example.com", code, device, false, ""},
		{"https://gw.example.com", "", connector, true, link.Preauth(connector)},
	} {
		d := NewWebSocket(Target{URL: test.base, Claim: test.claim, Token: func() link.Token { return test.token }})
		if got := d.preauth(test.skip); got != test.want {
			t.Errorf("%+v: %q", test, got)
		}
	}
}
