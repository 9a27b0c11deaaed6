package agent

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// otherIdentity starts a gateway with another identity at the same address, until the identity
// is given back.
func (g *fakeGateway) otherIdentity() (giveBack func()) {
	own, address := g.identity, g.token.Server
	restart := func(identity []byte) {
		g.kill()
		g.identity = identity
		g.listen(address)
	}
	identity, err := link.NewIdentity()
	if err != nil {
		g.t.Fatal(err)
	}
	restart(identity)
	return func() { restart(own) }
}

const didNotWork = "failed to connect with the new configuration; the last working one stays"

// TestReloadToNowhere: a configuration that does not work stays pending when the current tunnel
// is lost, and is adopted once it works.
func TestReloadToNowhere(t *testing.T) {
	t.Parallel()
	g, away := startGateway(t), startGateway(t)
	next := away.present(map[string]string{"box": answerWith(t, "new")})
	giveBack := away.otherIdentity()
	a := startAgent(t, g, answerWith(t, "old"), nil)
	s := g.session()
	if err := a.Reload(next); err != nil {
		t.Fatal(err)
	}
	failures := func() int { return strings.Count(a.log.String(), didNotWork) }
	wait.Until(t, "the failure", func() bool { return failures() == 1 })
	if got := a.Status().Server; got != g.token.Server {
		t.Errorf("the status names the server %s", got)
	}
	for range 2 {
		s.close(link.CloseShutdown)
		s = g.session()
		if got := s.ask(t); got != "old" {
			t.Errorf("the next tunnel answers %q", got)
		}
	}
	if n := away.count(); n != 0 {
		t.Errorf("the other one got %d hellos", n)
	}
	giveBack()
	a.mu.Lock()
	a.pending.pause, a.pending.retryAt = forever, time.Now() // as if the pause were over
	a.mu.Unlock()
	wake(a.legs[0])
	if got := away.session().ask(t); got != "new" {
		t.Errorf("the new gateway answers %q", got)
	}
	t.Cleanup(away.hangUp)
	if m := wait.For(t, s.got, "the drain"); m != (link.Drain{}) {
		t.Errorf("got %#v", m)
	}
	s.close(link.CloseDrained)
}

// TestReloadWithoutATunnel: while the old gateway is down, the new one is dialed again without
// another reload.
func TestReloadWithoutATunnel(t *testing.T) {
	g, away := startGateway(t), startGateway(t)
	next := away.present(map[string]string{"box": answerWith(t, "new")})
	giveBack := away.otherIdentity()
	a := startAgent(t, g, answerWith(t, "old"), func(a *Agent) { a.legs[0].retry.random = func() float64 { return .01 } })
	s := g.session()
	if err := a.Reload(next); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the failure", func() bool { return strings.Contains(a.log.String(), didNotWork) })
	// The new gateway is up before it is dialed: an agent waits for a gateway that was killed
	// during a handshake.
	g.set(func() {
		g.deny = &link.Deny{Code: link.DenyUnavailable, Message: "busy", Retry: true}
		g.denying = sync.OnceFunc(giveBack)
	})
	s.close(link.CloseShutdown)
	wait.Until(t, "the old one to be tried", func() bool { return g.count() >= 2 })
	if got := away.session().ask(t); got != "new" {
		t.Errorf("the new gateway answers %q", got)
	}
	t.Cleanup(away.hangUp)
}

// TestReloadsAreOneChain: one attempt follows each pause, however often a configuration that
// does not work is loaded.
func TestReloadsAreOneChain(t *testing.T) {
	t.Parallel()
	g, away := startGateway(t), startGateway(t)
	away.token.Pin = testToken.Pin
	const pause = 200 * time.Millisecond
	a := startAgent(t, g, answerWith(t, "old"), func(a *Agent) { a.reloadPause = pause })
	g.session()
	failures := func() int { // since the last reload
		log := a.log.String()
		return strings.Count(log[max(strings.LastIndex(log, "configuration reloaded"), 0):], didNotWork)
	}
	var last time.Time
	for range 6 {
		last = time.Now()
		if err := a.Reload(away.present(map[string]string{"box": "http://127.0.0.1:1"})); err != nil {
			t.Fatal(err)
		}
		wait.Until(t, "the failure", func() bool { return failures() > 0 })
	}
	wait.Until(t, "two more attempts", func() bool { return failures() >= 3 })
	if took := time.Since(last); took < pause+2*pause {
		t.Errorf("three attempts within %v", took)
	}
}

// TestReloadToARefusal: if the gateway refuses another connector's token, the tunnel stays.
func TestReloadToARefusal(t *testing.T) {
	g := startGateway(t)
	a := startAgent(t, g, answerWith(t, "old"), nil)
	s := g.session()
	denied(g)
	c := g.present(map[string]string{"box": "http://127.0.0.1:1"})
	token := g.token
	token.Connector = "con_bbbbbbbbbbbbbbbbbbbbbbbbbb"
	c.TunnelToken = token.Encode()
	if err := a.Reload(c); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the refusal", func() bool {
		return strings.Contains(a.log.String(), "the gateway refused the new configuration; the last working one stays")
	})
	if got := s.ask(t); got != "old" {
		t.Errorf("the tunnel answers %q", got)
	}
	select {
	case m := <-s.got:
		t.Errorf("the gateway got %#v", m)
	default:
	}
	if next := a.next().config; next != nil || a.Status().Connector != testToken.Connector {
		t.Errorf("it waits on; the connector is %s", a.Status().Connector)
	}
}

// TestReloadToAWrongSecret of the same connector: with the right secret its hello would end the
// tunnel, so the tunnel is drained first. The old configuration is back at once.
func TestReloadToAWrongSecret(t *testing.T) {
	g := startGateway(t)
	a := startAgent(t, g, answerWith(t, "old"), nil)
	s := g.session()
	denied(g)
	c := g.present(map[string]string{"box": answerWith(t, "new")})
	token := g.token
	token.Secret = strings.Repeat("x", len(token.Secret))
	c.TunnelToken = token.Encode()
	if err := a.Reload(c); err != nil {
		t.Fatal(err)
	}
	if m := wait.For(t, s.got, "the drain"); m != (link.Drain{}) {
		t.Fatalf("got %#v", m)
	}
	if err := s.control.Send(link.DrainOK{}); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the refusal", func() bool {
		return strings.Contains(a.log.String(),
			"the gateway refused the new configuration")
	})
	g.set(func() { g.deny = nil })
	again := g.session()
	if got := again.ask(t); got != "old" || again.hello.Secret != g.token.Secret {
		t.Errorf("the next tunnel answers %q", got)
	}
	s.close(link.CloseDrained)
}

// TestRemovedWithANewConfiguration: the connector was removed after a reload to a gateway that
// was not up yet.
func TestRemovedWithANewConfiguration(t *testing.T) {
	g, other := startGateway(t), startGateway(t)
	next := other.present(map[string]string{"box": answerWith(t, "new")})
	giveBack := other.otherIdentity()
	a := startAgent(t, g, answerWith(t, "old"), nil)
	s := g.session()
	if err := a.Reload(next); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the failure", func() bool { return strings.Contains(a.log.String(), didNotWork) })
	giveBack()
	s.close(link.CloseRemoved)
	wait.Until(t, "the pause", func() bool { return a.Status().State == StateWaiting })
	wake(a.legs[0])
	if got := other.session().ask(t); got != "new" {
		t.Errorf("the new gateway answers %q", got)
	}
	t.Cleanup(other.hangUp)
}
