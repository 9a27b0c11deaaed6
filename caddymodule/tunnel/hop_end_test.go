package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

// runningHop starts a request at entry for a connector of a peer.
func runningHop(t *testing.T, newEdge func(string) *testGateway) (entry, with *testGateway, p *testPeer, h *gate,
	r <-chan result,
) {
	t.Helper()
	entry, with = newEdge("a"), newEdge("b")
	p = with.joins(t, entry, "b")
	h = newGate()
	with.connect(t, "con_1", h).beats()
	time.Sleep(publishTime)
	r = background(t, entry.mustSession(t, "con_1"))
	<-h.started
	return entry, with, p, h, r
}

// wantAnswer ends the request, which has to succeed.
func wantAnswer(t *testing.T, h *gate, r <-chan result) {
	t.Helper()
	close(h.open)
	if got := <-r; got.body != "at last" || got.err != nil {
		t.Errorf("the running request: %q, %v", got.body, got.err)
	}
}

// TestStreamsAtPeer: a connector that allows no further stream gets no request from any gateway.
func TestStreamsAtPeer(t *testing.T) {
	inCluster(t, func(t *testing.T, newEdge func(string) *testGateway) {
		entry, with, h := newEdge("a"), newEdge("b"), newGate()
		with.joins(t, entry, "b")
		config := link.ConnectorQUIC(0)
		config.MaxIncomingStreams = 1
		conn, err := with.connectionWith(t.Context(), with.socket(t), config)
		if err != nil {
			t.Fatal(err)
		}
		c, err := with.handshake(t, conn, hello("con_1"), h)
		if err != nil {
			t.Fatal(err)
		}
		c.beats()
		time.Sleep(publishTime)
		r := background(t, entry.mustSession(t, "con_1"))
		<-h.started
		for _, g := range []*testGateway{entry, with} {
			if _, err := send(t.Context(), g.mustSession(t, "con_1"), "{}"); !errors.Is(err, link.ErrNoCredit) {
				t.Errorf("a second request: %v", err)
			}
		}
		wantAnswer(t, h, r)
		time.Sleep(publishTime)
		for _, g := range []*testGateway{entry, with} {
			if n := g.mustSession(t, "con_1").Active(); n != 0 {
				t.Errorf("%d requests run", n)
			}
		}
	})
}

// TestClientLeavesHop ends a request whose client leaves before the answer begins.
func TestClientLeavesHop(t *testing.T) {
	inCluster(t, func(t *testing.T, newEdge func(string) *testGateway) {
		entry, with, _, h, r := runningHop(t, newEdge)
		defer wantAnswer(t, h, r)
		with.connect(t, "con_2", h).beats()
		time.Sleep(publishTime)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-h.started
			cancel()
		}()
		if _, err := send(ctx, entry.mustSession(t, "con_2"), "{}"); !errors.Is(err, context.Canceled) {
			t.Errorf("a canceled request: %v", err)
		}
		time.Sleep(soon)
		if n := with.mustSession(t, "con_2").Active(); n != 0 {
			t.Errorf("%d requests run at the peer", n)
		}
	})
}

// TestClosesDuringHop closes each of the two gateways: its running requests may finish, and it
// gets no others.
func TestClosesDuringHop(t *testing.T) {
	for _, closes := range []string{"entry", "with"} {
		t.Run(closes, func(t *testing.T) {
			inCluster(t, func(t *testing.T, newEdge func(string) *testGateway) {
				entry, with, p, h, r := runningHop(t, newEdge)
				g := map[string]*testGateway{"entry": entry, "with": with}[closes]
				closed := make(chan error, 1)
				go func() {
					ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
					defer cancel()
					closed <- g.Close(ctx)
				}()
				time.Sleep(publishTime)
				if s, ok := entry.Find("con_1"); ok {
					t.Errorf("a new request gets %+v", s.Info())
				}
				wantAnswer(t, h, r)
				if err := <-closed; err != nil {
					t.Error(err)
				}
				time.Sleep(publishTime)
				if code, _ := link.CloseReason(context.Cause(p.conn.Context())); closes == "entry" && code != link.CloseShutdown {
					t.Errorf("the connection ended with %v", context.Cause(p.conn.Context()))
				}
			})
		})
	}
}

// TestLostDuringHop ends one of the two connections, and the tunnel as that of a connector that
// was removed.
func TestLostDuringHop(t *testing.T) {
	for name, end := range map[string]func(with *testGateway, p *testPeer){
		"removed":  func(with *testGateway, _ *testPeer) { with.Disconnect("con_1", link.CloseRemoved) },
		"the peer": func(_ *testGateway, p *testPeer) { _ = p.conn.Close(link.CloseLost, "") },
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, newEdge func(string) *testGateway) {
				entry, with, p, _, r := runningHop(t, newEdge)
				end(with, p)
				wantError(t, (<-r).err, link.ErrTunnelLost)
				time.Sleep(publishTime)
				if len(entry.Sessions()) != 0 {
					t.Error("there still is a session")
				}
				if s, ok := with.Session("con_1"); ok && s.Active() != 0 {
					t.Errorf("%d requests run", s.Active())
				}
			})
		})
	}
}

// TestSilentDuringHop: the gateway that the request came to learns that the connector of a peer is silent.
func TestSilentDuringHop(t *testing.T) {
	inCluster(t, func(t *testing.T, newEdge func(string) *testGateway) {
		entry, with := newEdge("a"), newEdge("b")
		with.joins(t, entry, "b")
		h := newGate()
		with.connect(t, "con_1", h) // without pings
		time.Sleep(publishTime)
		r := background(t, entry.mustSession(t, "con_1"))
		<-h.started
		wantError(t, (<-r).err, link.ErrSilent)
		time.Sleep(publishTime)
		if _, ok := entry.Session("con_1"); ok {
			t.Error("it gets requests")
		}
	})
}

// TestDeafConnectorAtPeer: a connector that does not read its requests does not stop those for
// others over the same peer.
func TestDeafConnectorAtPeer(t *testing.T) {
	if testing.Short() {
		t.Skip("moves 200 MB: TestWindowsOfPeers checks the windows")
	}
	inCluster(t, func(t *testing.T, newEdge func(string) *testGateway) {
		const requests = 100
		entry, with := newEdge("a"), newEdge("b")
		with.joins(t, entry, "b")
		deaf := newGate()
		with.connect(t, "con_deaf", deaf).beats()
		with.connect(t, "con_1", echo).beats()
		time.Sleep(publishTime)
		long := strings.Repeat("x", 1200<<10)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, requests)
		for range requests {
			go func() {
				_, err := send(ctx, entry.mustSession(t, "con_deaf"), long)
				ended <- err
			}()
		}
		<-deaf.started
		time.Sleep(10 * soon) // until the window of the connector is full
		soonEnds, stop := context.WithTimeout(t.Context(), 5*time.Second)
		defer stop()
		if body, err := send(soonEnds, entry.mustSession(t, "con_1"), "{}"); body != "{}" || err != nil {
			t.Errorf("answer %q, %v", body, err)
		}
		cancel()
		for range requests {
			wantError(t, <-ended, context.Canceled)
		}
		time.Sleep(publishTime)
		if n := with.mustSession(t, "con_deaf").Active(); n != 0 {
			t.Errorf("%d requests run", n)
		}
	})
}

// TestDeafClientsAtPeer: clients that do not read their answers do not stop others that use the
// same peer.
func TestDeafClientsAtPeer(t *testing.T) {
	if testing.Short() {
		t.Skip("moves 200 MB: TestWindowsOfPeers checks the windows")
	}
	inCluster(t, func(t *testing.T, newEdge func(string) *testGateway) {
		const connectors, clients = 4, 50 // their answers are larger than the window of a tunnel
		entry, with := newEdge("a"), newEdge("b")
		with.joins(t, entry, "b")
		answer := make([]byte, 1<<20)
		for i := range connectors {
			with.connect(t, fmt.Sprintf("con_%d", i), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write(answer)
			})).beats()
		}
		with.connect(t, "con_other", echo).beats()
		time.Sleep(publishTime)
		for i := range connectors {
			for range clients {
				a, err := entry.mustSession(t, fmt.Sprintf("con_%d", i)).RoundTrip(post("{}").WithContext(t.Context()))
				if err != nil {
					t.Fatal(err)
				}
				defer a.Body.Close()
			}
		}
		time.Sleep(10 * soon) // until the windows of the streams are full
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
		defer stop()
		if body, err := send(ctx, entry.mustSession(t, "con_other"), "{}"); body != "{}" || err != nil {
			t.Errorf("answer %q, %v", body, err)
		}
	})
}
