package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// denied returns why the gateway has closed the connection of a connector whose token is no longer valid.
func (c *testConnector) denied(t testing.TB) link.Deny {
	t.Helper()
	if code := c.ended(t); code != link.CloseDenied {
		t.Fatalf("closed with %v", code)
	}
	why, _ := link.Denied(context.Cause(c.conn.Context()))
	return why
}

// secrets are the valid secrets of all connectors, with their ends.
type secrets struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// rotate makes a secret valid, and lets the present one end after the grace period.
func (s *secrets) rotate(present, next string, grace time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until[present], s.until[next] = time.Now().Add(grace), time.Time{}
}

func (s *secrets) check(secret string) (until time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, known := s.until[secret]
	switch {
	case !known:
		err = errors.New("removed")
	case !until.IsZero() && !time.Now().Before(until):
		err = fmt.Errorf("its end was at %v: %w", until, ErrRotated)
	}
	return until, err
}

func (s *secrets) options() Options {
	return Options{
		Authenticate: func(_ context.Context, id, secret string) (c Connector, err error) {
			c.ID = id
			copy(c.Secret[:], secret)
			_, err = s.check(secret)
			return c, err
		},
		Valid: func(c Connector) (time.Time, error) { return s.check(strings.TrimRight(string(c.Secret[:]), "\x00")) },
	}
}

// Without grace, the tunnel of the old secret ends with the reason, and a hello with it is denied with the
// same reason. Tunnels of other connectors, and of the new secret, stay.
func TestRotate(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		s := &secrets{until: map[string]time.Time{"secret": {}}}
		g := newGateway(t, s.options())
		old := g.connect(t, "con_1", named("old"))
		g.Review("con_1")
		if body, err := g.do(t, "con_1", ""); body != "old" || err != nil {
			t.Errorf("before the rotation: %q, %v", body, err)
		}
		s.rotate("secret", "new", 0)
		g.Review("con_1")
		want := func(why link.Deny) {
			t.Helper()
			if why.Code != link.DenyCredentials || why.Retry || !strings.Contains(why.Message, "was rotated") ||
				!strings.Contains(why.Message, "tunnel_token") {
				t.Errorf("denied: %+v", why)
			}
		}
		want(old.denied(t))
		if _, ok := g.Session("con_1"); ok {
			t.Error("there still is a session")
		}
		greeting := hello("con_1")
		var why link.Deny
		if _, err := g.dial(t, g.socket(t), greeting, named("old")); !errors.As(err, &why) {
			t.Fatalf("a hello with the old secret: %v", err)
		}
		want(why)
		greeting.Secret = "new"
		if _, err := g.dial(t, g.socket(t), greeting, named("new")); err != nil {
			t.Fatal(err)
		}
		g.Review("con_1")
		if body, err := g.do(t, "con_1", ""); body != "new" || err != nil {
			t.Errorf("with the new secret: %q, %v", body, err)
		}
	})
}

// With grace, a tunnel of the old secret stays until its end, whether it was opened before the rotation
// or after it.
func TestRotateWithGrace(t *testing.T) {
	simulate(t, 10*time.Millisecond, func(t *testing.T, _ *network, g *testGateway, sockets []net.PacketConn) {
		s := &secrets{until: map[string]time.Time{"secret": {}}}
		g.SetOptions(s.options())
		const grace = 10*time.Minute + 7*time.Second
		open := func(socket net.PacketConn, id string) *testConnector {
			t.Helper()
			c, err := g.dial(t, socket, hello(id), named(id))
			if err != nil {
				t.Fatal(err)
			}
			c.beats()
			return c
		}
		before := open(sockets[0], "con_1")
		s.rotate("secret", "new", grace)
		end := time.Now().Add(grace)
		g.Review("con_1")
		after := open(sockets[1], "con_2")
		time.Sleep(time.Until(end) - time.Second)
		for id, c := range map[string]*testConnector{"con_1": before, "con_2": after} {
			if body, err := g.do(t, id, ""); body != id || err != nil {
				t.Errorf("%s a second before the end: %q, %v", id, body, err)
			}
			if c.conn.Context().Err() != nil {
				t.Errorf("%s has ended", id)
			}
		}
		for _, c := range []*testConnector{before, after} {
			if why := c.denied(t); !strings.Contains(why.Message, "was rotated") || time.Since(end) > time.Second {
				t.Errorf("closed %v after the end: %+v", time.Since(end), why)
			}
		}
	})
}

// A secret that ends while its hello is checked has no tunnel. A connector that was removed meanwhile
// gets another reason, which is final.
func TestRotatedDuringTheHello(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		for failure, want := range map[error]link.CloseCode{
			ErrRotated: link.CloseDenied, errors.New("removed"): link.CloseRemoved,
		} {
			g := newGateway(t, Options{Valid: func(Connector) (time.Time, error) { return time.Time{}, failure }})
			c, err := g.dial(t, g.socket(t), hello("con_1"), named("a"))
			if c == nil {
				t.Fatal(err)
			}
			if code := c.ended(t); code != want {
				t.Errorf("%v: closed with %v, want %v", failure, code, want)
			}
			wait.Until(t, "the session is gone", func() bool { return len(g.Sessions()) == 0 })
		}
	})
}
