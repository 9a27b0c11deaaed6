package signin

import (
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/postern-dev/postern/tests/storetest"
)

func TestRelyingParty(t *testing.T) {
	t.Parallel()
	tests := []struct{ origin, id, problem string }{
		{"https://gw.example.com", "gw.example.com", ""},
		{"https://GW.example.com:8443", "gw.example.com", ""},
		{"https://gateway", "", "full host name"},
		{"http://localhost:2015", "localhost", ""},
		{"https://localhost", "localhost", ""},
		{"http://gw.example.com", "", "need HTTPS"},
		{"http://localhost.example.com", "", "need HTTPS"},
		{"ftp://localhost", "", "need HTTPS"},
		{"https://192.0.2.1", "", "IP address"},
		{"https://[2001:db8::1]:443", "", "IP address"},
		{"http://127.0.0.1:2015", "", "IP address"},
		{"https://gw.example.com/console", "", "address of the page"},
		{"https://ann@gw.example.com", "", "address of the page"},
		{"https://gw.example.com?x", "", "address of the page"},
		{"https://", "", "address of the page"},
		{"gw.example.com", "", "address of the page"},
		{"null", "", "address of the page"},
		{"", "", "address of the page"},
		{"https://gw..example.com", "", "full host name"},
		{"https://-gw.example.com", "", "full host name"},
	}
	for _, test := range tests {
		t.Run(test.origin, func(t *testing.T) {
			t.Parallel()
			party, err := relyingParty(test.origin)
			if test.problem == "" {
				if err != nil || party.Config.RPID != test.id {
					t.Fatalf("%v, %v", party, err)
				}
				return
			}
			if !errors.Is(err, ErrPasskey) || !strings.Contains(err.Error(), test.problem) {
				t.Errorf("error %v, want one about %q", err, test.problem)
			}
		})
	}
}

func TestCeremonies(t *testing.T) {
	t.Parallel()
	const origin = "https://gw.example.com"
	now := time.Now()
	seal, err := storetest.New(t).Sealer(t.Context())
	must(t, err)
	c := sealer{seal}
	begin := func() string {
		id, err := c.sealCeremony("", origin, &webauthn.SessionData{Challenge: rand.Text()}, now)
		must(t, err)
		return id
	}
	works := func(id string) bool {
		_, err := c.openCeremony(id, origin, "", now)
		if err != nil && !errors.Is(err, ErrPasskey) {
			t.Errorf("error %v", err)
		}
		return err == nil
	}
	id := begin()
	if !works(id) {
		t.Error("a ceremony does not work")
	}
	if spoiled := begin() + "AAAA"; works("") || works("x") || works(spoiled) {
		t.Error("an unknown ceremony works")
	}
	for at := 0; at < len(id)-16; at += 7 { // the last character has unused bits
		tampered := []byte(begin())
		tampered[at] ^= 1
		if works(string(tampered)) {
			t.Errorf("a ceremony works with another byte %d", at)
		}
	}
	for _, other := range []struct{ origin, user string }{{"https://evil.example.com", ""}, {origin, "usr_x"}} {
		if _, err := c.openCeremony(begin(), other.origin, other.user, now); err == nil {
			t.Errorf("a ceremony works for %+v", other)
		}
	}
	if _, err := c.openCeremony(begin(), origin, "", now.Add(ceremonyLife)); err == nil {
		t.Error("a ceremony works after its end")
	}
}
