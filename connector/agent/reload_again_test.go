package agent

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// TestReloadTwiceInARow reloads while the agent dials the gateway of the first reload, which
// must not receive the token of the second.
func TestReloadTwiceInARow(t *testing.T) {
	g, one, two := startGateway(t), startGateway(t), startGateway(t)
	slow := newRelay(t, one.socket.LocalAddr())
	slow.blocked.Store(true)
	box := answerWith(t, "box")
	a := startAgent(t, g, box, nil)
	s := g.session()

	c := one.present(map[string]string{"box": box})
	c.Server = slow.front.LocalAddr().String()
	if err := a.Reload(c); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the first one to be dialed", func() bool {
		slow.mu.Lock()
		defer slow.mu.Unlock()
		return len(slow.backs) > 0
	})
	if err := a.Reload(two.present(map[string]string{"box": box})); err != nil {
		t.Fatal(err)
	}
	slow.blocked.Store(false)
	if m := wait.For(t, s.got, "the drain"); m != (link.Drain{}) {
		t.Fatalf("got %#v", m)
	}
	if err := s.control.Send(link.DrainOK{}); err != nil {
		t.Fatal(err)
	}
	two.session()
	if n := one.count(); n != 0 {
		t.Errorf("the first gateway got %d hellos", n)
	}
	s.close(link.CloseDrained)
	two.hangUp()
}

// TestReloadAgainDuringTheDrain reloads while the gateway processes the drain for an earlier
// reload. The earlier one gets its tunnel, and the newest configuration's tunnel then replaces
// that.
func TestReloadAgainDuringTheDrain(t *testing.T) {
	g := startGateway(t)
	a := startAgent(t, g, answerWith(t, "old"), nil)
	s := g.session()
	reload := func(i int) {
		t.Helper()
		if err := a.Reload(g.present(map[string]string{
			"box":                answerWith(t, "new"),
			fmt.Sprint("bix", i): "http://127.0.0.1:1",
		})); err != nil {
			t.Fatal(err)
		}
	}
	reload(0)
	if m := wait.For(t, s.got, "the drain"); m != (link.Drain{}) {
		t.Fatalf("got %#v", m)
	}
	for i := range 20 {
		reload(i + 1)
	}
	if err := s.control.Send(link.DrainOK{}); err != nil {
		t.Fatal(err)
	}
	g.session().drained(t)
	next := g.session()
	if got := next.ask(t); got != "new" || next.hello.Upstreams[0] != "bix20" {
		t.Errorf("the new tunnel to %v answers %q", next.hello.Upstreams, got)
	}
	if log := a.log.String(); strings.Contains(log, "retry_in") {
		t.Errorf("log %s", log)
	}
	s.close(link.CloseDrained)
}

// TestTunnelEndsDuringAReload: if the tunnel ends during a reload, the connection for the
// reload sends no hello.
func TestTunnelEndsDuringAReload(t *testing.T) {
	g := startGateway(t)
	a := startAgent(t, g, answerWith(t, "old"), nil)
	g.session()
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	dialed := make(chan net.Conn, 100)
	go func() {
		for {
			conn, err := mute.Accept()
			if err != nil {
				return
			}
			dialed <- conn
		}
	}()
	c := g.present(map[string]string{"box": "http://127.0.0.1:1"})
	token := g.token
	token.URL = "http://" + mute.Addr().String()
	c.TunnelToken, c.Transport = token.Encode(), config.TransportWebSocket
	if err := a.Reload(c); err != nil {
		t.Fatal(err)
	}
	defer wait.For(t, dialed, "the WebSocket").Close()
	g.hangUp()
	wait.Until(t, "the end of the tunnel to be noticed", func() bool {
		return strings.Contains(a.log.String(), "disconnected")
	})
	defer wait.For(t, dialed, "the next attempt").Close()
}

// TestChangeWithoutAnAnswer: if the path dies before the gateway confirms a drain, the old
// tunnel's requests survive.
func TestChangeWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	working, finish := make(chan struct{}), make(chan struct{})
	server := serveModel(t, func(w http.ResponseWriter, _ *http.Request) {
		close(working)
		<-finish
		io.WriteString(w, "finished")
	})
	a := startAgent(t, g, server.URL, func(a *Agent) { a.confirmLimit = time.Second })
	first := g.session()
	running := make(chan string, 1)
	go func() { running <- first.ask(t) }()
	wait.For(t, working, "the upstream")
	c := g.present(map[string]string{"box": server.URL, "other": server.URL})
	c.MaxRequests = 8 // needs another tunnel
	if err := a.Reload(c); err != nil {
		t.Fatal(err)
	}
	if m := wait.For(t, first.got, "the drain"); m != (link.Drain{}) {
		t.Fatalf("got %#v", m)
	}
	g.session()
	close(finish)
	if got := wait.For(t, running, "the answer on the old tunnel"); got != "finished" {
		t.Errorf("the request on the old tunnel: %q", got)
	}
	first.close(link.CloseDrained)
}
