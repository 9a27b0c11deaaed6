package signin

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
)

func TestRelyingParty(t *testing.T) {
	t.Parallel()
	tests := []struct{ origin, id, problem string }{
		{"https://gw.example.com", "gw.example.com", ""},
		{"https://GW.example.com:8443", "gw.example.com", ""},
		{"https://gateway", "", "full host name"},
		{"http://localhost:2015", "localhost", ""},
		{"https://localhost", "localhost", ""},
		{"http://gw.example.com", "", "need https"},
		{"http://localhost.example.com", "", "need https"},
		{"ftp://localhost", "", "need https"},
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
	c := newCeremonies()
	begin := func(address string) string {
		return c.add(ceremony{client: customer(fair.Parse(address)), origin: origin}, now)
	}
	works := func(id string) bool {
		_, err := c.take(id, origin, "", now)
		if err != nil && !errors.Is(err, ErrPasskey) {
			t.Errorf("error %v", err)
		}
		return err == nil
	}
	id := begin("192.0.2.1")
	if !works(id) || works(id) {
		t.Error("a ceremony works once")
	}
	if works("") || works("x") {
		t.Error("an unknown ceremony works")
	}
	// One that comes back to another page or user is spent.
	for _, other := range []struct{ origin, user string }{{"https://evil.example.com", ""}, {origin, "usr_x"}} {
		id := begin("192.0.2.1")
		if _, err := c.take(id, other.origin, other.user, now); err == nil {
			t.Errorf("a ceremony works for %+v", other)
		}
		if works(id) {
			t.Error("a ceremony works after it was tried elsewhere")
		}
	}
	id = begin("192.0.2.1")
	if _, err := c.take(id, origin, "", now.Add(ceremonyLife)); err == nil {
		t.Error("a ceremony works after its end")
	}
	// One client displaces its own, and nobody else's.
	mine := begin("192.0.2.1")
	first := begin("2001:db8::1")
	for i := range 3 * maxCeremonies {
		begin(fmt.Sprintf("2001:db8:0:%x::1", i))
	}
	if works(first) || len(c.list) != maxOfClient+1 {
		t.Errorf("one client has %d ceremonies", len(c.list)-1)
	}
	if !works(mine) {
		t.Error("a client's ceremony was displaced by another client's")
	}
	// Nor do all that some hundreds of clients begin.
	mine = begin("192.0.2.1")
	for i := range 4 * maxCeremonies {
		begin(fmt.Sprintf("2001:db8:%x::1", i%500))
	}
	if !works(mine) {
		t.Error("a client's ceremony was displaced by those of hundreds of others")
	}
	for i := range 2 * maxCeremonies {
		begin(fmt.Sprintf("2001:db8:%x::1", i))
	}
	if len(c.list) != maxCeremonies {
		t.Errorf("there are %d ceremonies, not %d", len(c.list), maxCeremonies)
	}
	now = now.Add(ceremonyLife)
	if begin("192.0.2.1"); len(c.list) != 1 || len(c.of) != 1 {
		t.Errorf("%d ceremonies are kept after their end", len(c.list)-1)
	}
}
