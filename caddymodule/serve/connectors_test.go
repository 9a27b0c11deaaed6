package serve

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/caddymodule/turns"
)

// hubs are hubs of which each has at most one tunnel, of the connector of m.
type hubs struct {
	*testGateway
	id      string
	tunnels map[*tunnel.Hub]Tunnel
	began   map[*tunnel.Hub]time.Time
}

func newHubs(t *testing.T) *hubs {
	g := newGateway(t, 64<<20)
	g.answer = func(*http.Request) *http.Response {
		return upstreamAnswer("application/json", strings.NewReader(completionOf("hi")), -1)
	}
	d, _ := g.backend.Store.Deployment(store.DefaultAccount, "m")
	h := &hubs{g, d.Connectors[0], make(map[*tunnel.Hub]Tunnel), make(map[*tunnel.Hub]time.Time)}
	g.backend.Turns.RemoveConnector(store.DefaultAccount, h.id)
	g.backend.connectors.find = func(hub *tunnel.Hub, id string, except []Tunnel) (
		c turns.Connector, since time.Time, ok bool,
	) {
		now := h.tunnels[hub]
		return connectorAt(store.DefaultAccount, id, now), h.began[hub], now != nil && !slices.Contains(except, now)
	}
	return h
}

// add returns another hub.
func (h *hubs) add() *tunnel.Hub {
	hub := tunnel.NewHub(tunnel.Options{})
	h.backend.Follow(hub)
	return hub
}

// connect connects the connector to a hub.
func (h *hubs) connect(hub *tunnel.Hub, t Tunnel) {
	h.tunnels[hub], h.began[hub] = t, time.Now()
	h.event()
}

// event is an event of a hub.
func (h *hubs) event() { h.backend.connectors.refresh(store.DefaultAccount, h.id) }

// expect expects the status of a request.
func (h *hubs) expect(t *testing.T, status int) {
	t.Helper()
	const path = "/v1/chat/completions"
	if w := h.post(path, requests[path]); w.Code != status {
		t.Errorf("%d %s, want %d", w.Code, w.Body, status)
	}
}

// After a reload with another address, the former hub still reports, and ends later.
func TestConnectorAtTwoHubs(t *testing.T) {
	h := newHubs(t)
	former, current := h.add(), h.add()
	h.connect(former, &lostTunnel{fakeTunnel{h.testGateway}, func(*testGateway) { t.Error("the former hub is used") }})
	h.connect(current, fakeTunnel{h.testGateway})
	h.event()
	h.expect(t, http.StatusOK)
	h.backend.Unfollow(former)
	h.expect(t, http.StatusOK)
	h.backend.Unfollow(current)
	h.expect(t, http.StatusServiceUnavailable)
	if n := len(h.backend.connectors.accounts); n != 0 {
		t.Errorf("%d connectors are left", n)
	}
}

// A hub reports no event if a connector loses one of several tunnels.
func TestConnectorHasAnotherTunnel(t *testing.T) {
	h := newHubs(t)
	hub := h.add()
	h.connect(hub, &lostTunnel{fakeTunnel{h.testGateway}, func(g *testGateway) { h.tunnels[hub] = fakeTunnel{g} }})
	h.expect(t, http.StatusOK)
}

// A tunnel of a peer stays while the peer takes no requests.
func TestTunnelTakesNoRequests(t *testing.T) {
	h := newHubs(t)
	hub, sent := h.add(), 0
	h.connect(hub, &lostTunnel{fakeTunnel{h.testGateway}, func(*testGateway) { sent++ }})
	for range 2 { // the connector stays online
		if h.expect(t, http.StatusServiceUnavailable); sent != 1 {
			t.Errorf("sent %d times, want once", sent)
		}
		sent = 0
	}
}
