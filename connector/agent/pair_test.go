package agent

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/dial"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

func TestPairNeedsACode(t *testing.T) {
	for _, code := range []string{"", " \n", strings.Repeat("P", 65), "PAIR\x1b[31m"} {
		_, err := Pair(t.Context(), PairOptions{Server: "127.0.0.1:1", Code: code, Upstreams: []string{"default"}})
		if err == nil || strings.Contains(err.Error(), "PAIR") {
			t.Errorf("%q: error = %v", code, err)
		}
	}
}

// TestPairGivesUp: a gateway that never answers is dialed for the lifetime of a code, with a
// hint after each attempt.
func TestPairGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hints, tries int
		p, err := newPairing(PairOptions{
			Server: "gw:1", Code: "c", Upstreams: []string{"default"},
			Interrupted: func(why, fix string, pause time.Duration) {
				if tries++; strings.Contains(fix, "UDP can reach it at gw:1") && why != "" && pause <= longPause {
					hints++
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		p.config.transport = config.TransportQUIC // a synctest bubble cannot resolve names
		p.retry.random = func() float64 { return 0.5 }
		p.config.quic.Resolve = func(context.Context, string) ([]netip.AddrPort, error) {
			time.Sleep(time.Second)
			return nil, dial.ErrSilent
		}
		start := time.Now()
		_, err = p.run(t.Context())
		if lasted := time.Since(start); !errors.Is(err, ErrUnreachable) || lasted < pairPatience ||
			lasted > pairPatience+longPause {
			t.Errorf("after %v: %v", lasted, err)
		}
		if hints < 20 || hints != tries {
			t.Errorf("%d hints in %d tries", hints, tries)
		}
	})
}

func TestPairStopsInAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := newPairing(PairOptions{Server: "gw:1", Code: "c", Upstreams: []string{"default"}})
		if err != nil {
			t.Fatal(err)
		}
		p.config.transport = config.TransportQUIC
		p.config.quic.Resolve = func(context.Context, string) ([]netip.AddrPort, error) {
			return nil, errors.New("no such name")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := p.run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error = %v", err)
		}
	})
}

// TestAnswersToTheOtherHello: an answer to the wrong kind of hello is an error.
func TestAnswersToTheOtherHello(t *testing.T) {
	g := startGateway(t)
	conn, err := dial.NewQUIC(dial.Target{
		Server: g.token.Server,
		Token:  func() link.Token { return g.token },
	}).Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := newSession(&leg{instance: new(Agent).newInstance(&configuration{})}, conn)
	if err := s.begin(link.Grant{TunnelToken: "ptt_x"}); !errors.Is(err, ErrNoWelcome) {
		t.Errorf("a tunnel took a grant: %v", err)
	}
	<-conn.Context().Done()

	// The fake gateway welcomes every hello.
	p, err := newPairing(PairOptions{Server: g.token.Server, Pin: g.token.Pin, Code: "c", Upstreams: []string{"default"}})
	if err != nil {
		t.Fatal(err)
	}
	p.config.transport = config.TransportQUIC
	if _, end := p.attempt(t.Context()); !errors.Is(end.err, ErrNoWelcome) {
		t.Errorf("a pairing took a welcome: %v", end.err)
	}
}

// TestPairingStaysUp: a device waits for the decision on one connection while the gateway
// answers its pings.
func TestPairingStaysUp(t *testing.T) {
	g := startGateway(t)
	g.set(func() { g.pending = true })
	p, err := newPairing(PairOptions{Server: g.token.Server, Pin: g.token.Pin, Code: "c", Upstreams: []string{"default"}})
	if err != nil {
		t.Fatal(err)
	}
	p.config.transport = config.TransportQUIC
	granted := make(chan string, 1)
	go func() {
		token, _ := p.run(t.Context()) // "" if it failed
		granted <- token
	}()
	s := g.session()
	// Six pings fit into the time for the first answer.
	wait.Until(t, "10 pings", func() bool { return s.pings.Load() >= 10 })
	if err := s.control.Send(link.Grant{TunnelToken: g.token.Encode()}); err != nil {
		t.Fatal(err)
	}
	if token := wait.For(t, granted, "the token"); token != g.token.Encode() || g.count() != 1 {
		t.Errorf("granted %d bytes after %d claims", len(token), g.count())
	}
}
