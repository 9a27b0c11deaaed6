package tunnel

import (
	"context"
	"crypto/sha256"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// secretOf is the store of secrets: every connector has the same.
func secretOf(_ string, match func(secretHash []byte) bool) bool {
	hash := sha256.Sum256([]byte("secret"))
	return match(hash[:])
}

// besiege lets 3,000 networks open all connections that strangers can have, and take all permits,
// and keep them.
func (g *testGateway) besiege(t *testing.T) {
	t.Helper()
	crowd(t, g)
	held := 0
	for range 3 {
		for i := range 3000 {
			if p := g.pending.add(networkOf(i), ""); p != nil {
				if !p.identify("") {
					p.free()
					continue
				}
				held++
				go func() { _ = p.waitHandshake(t.Context(), g.handshakes) }()
			}
		}
	}
	if held != maxStrangers {
		t.Errorf("strangers have %d connections, not %d", held, maxStrangers)
	}
	wait.Until(t, "they wait", func() bool { return g.queued() > 1000 })
}

// TestConnectorsComeInDespiteStrangers: 3,000 networks that dial and say nothing keep
// no connector out, whether it was there before or its gateway has just started, and
// from whatever address it comes.
func TestConnectorsComeInDespiteStrangers(t *testing.T) {
	overBothReal(t, func(t *testing.T, newGateway gatewayMaker) {
		g := newGateway(t, Options{Preauthenticate: secretOf})
		g.besiege(t)
		unknown := hello("con_2")
		for _, preauth := range []string{
			"", "con_2", "con_2.", "con_2." + strings.Repeat("A", 22),
			link.Preauth(link.Token{Connector: "con_2", Secret: "wrong", Pin: g.Pin()}),
			link.Preauth(link.Token{Connector: "con_2", Secret: "secret", Pin: "another"}),
		} {
			g.preauth = preauth
			if _, err := g.dial(t, listenLoopback(t), unknown, echo); err == nil {
				t.Fatalf("there was room for a stranger, with %q", preauth)
			}
		}
		for range 2 { // and again
			g.preauth = link.Preauth(link.Token{Connector: "con_1", Secret: "secret", Pin: g.Pin()})
			g.connect(t, "con_1", echo)
			if body, err := g.do(t, "con_1", "hi"); body != "hi" || err != nil {
				t.Errorf("%q, %v", body, err)
			}
		}
		wait.Until(t, "its connection is closed", func() bool {
			g.pending.mu.Lock()
			defer g.pending.mu.Unlock()
			return g.pending.known == 0 && len(g.pending.connectors) == 0
		})
	})
}

// TestOnePreauthIsChecked: the gateway checks only one of the preauthentications in a ClientHello.
func TestOnePreauthIsChecked(t *testing.T) {
	t.Parallel()
	var checks atomic.Int32
	g := newGateway(t, Options{Preauthenticate: func(string, func([]byte) bool) bool {
		checks.Add(1)
		return false
	}})
	config := link.ConnectorTLS("", g.Pin())
	for range 50 {
		config.NextProtos = append(config.NextProtos, link.PreauthProtocol+"con_1."+strings.Repeat("A", 22))
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := quic.Dial(ctx, listenLoopback(t), g.addr, config, link.ConnectorQUIC(0))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseWithError(0, "")
	if n := checks.Load(); n != 1 {
		t.Errorf("%d were checked", n)
	}
}

// TestKnownPlacesAreBounded: of one connector, and in all. Beyond that it is like any
// other connection.
func TestKnownPlacesAreBounded(t *testing.T) {
	t.Parallel()
	p := newPending()
	known := func(connector string, i int) *pendingConn {
		l := p.add(networkOf(i), "")
		if l == nil || !l.identify(connector) {
			t.Fatalf("connection %d of %s was refused", i, connector)
		}
		return l
	}
	var all []*pendingConn
	for i := range 2 * knownPerConnector {
		all = append(all, known("con_1", i))
	}
	p.perAddress = 0
	if p.known != knownPerConnector || p.strangers != knownPerConnector || p.add(networkOf(1), "con_1") != nil {
		t.Errorf("%d connections are known, %d are not", p.known, p.strangers)
	}
	p.perAddress = pendingPerAddress
	for i := range maxKnown {
		all = append(all, known("con_"+string(rune('a'+i)), i))
	}
	if p.known != maxKnown || p.strangers != 2*knownPerConnector {
		t.Errorf("%d connections are known, %d are not", p.known, p.strangers)
	}
	for _, l := range all {
		l.free()
		l.free() // counts once
	}
	if p.known != 0 || p.strangers != 0 || p.unknown.Used() != 0 || len(p.connectors) != 0 {
		t.Errorf("left behind: %+v", p)
	}
	if l := p.add(networkOf(1), ""); l.identify("") {
		l.free()
		if l.identify("con_1") {
			t.Error("a freed connection was counted for a connector")
		}
	}
}

// TestDevicesPairDespiteStrangers: a device that shows an open pairing code comes in over a
// WebSocket when strangers have all connections. No other does, and a code has few.
func TestDevicesPairDespiteStrangers(t *testing.T) {
	desk := new(testDesk)
	g := newWebGateway(t, Options{Preauthenticate: secretOf, Pairing: desk})
	g.besiege(t)
	for _, preauth := range []string{
		"", link.PreauthClaim(g.Pin(), "PAIR-7K2M-9QXW"), link.PreauthClaim("another", claimCode),
		link.PreauthPairing + "." + claimCode,
	} {
		g.preauth = preauth
		if _, err := g.dialWebSocket(t.Context()); err == nil {
			t.Fatalf("there was room for a stranger, with %q", preauth)
		}
	}
	g.preauth = link.PreauthClaim(g.Pin(), " pair-7k2m-9qxv ")
	c, err := g.dial(t, listenLoopback(t), claimOf(1), http.NotFoundHandler())
	if err != nil {
		t.Fatal(err)
	}
	if pending, ok := c.next(t).(link.Pending); !ok {
		t.Errorf("the device got %+v", pending)
	}
	for range knownPerConnector { // without a hello
		if _, err := g.dialWebSocket(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := g.dialWebSocket(t.Context()); err == nil {
		t.Error("one code opens any number of connections")
	}
}
