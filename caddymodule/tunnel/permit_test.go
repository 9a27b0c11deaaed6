package tunnel

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/connector/link"
)

var (
	clientA = fair.Client{Owner: "usr_1", Key: "key_1"}
	clientB = fair.Client{Owner: "usr_2", Key: "key_2"}
)

// reserved is what Reserve returned.
type reserved struct {
	*PermittedSession
	err error
}

// longest is how long a test waits for a permit.
const longest = 30 * time.Second

// awaitPermit waits for a permit in the background.
func awaitPermit(ctx context.Context, c fair.Client, sessions ...*Session) <-chan reserved {
	done := make(chan reserved, 1)
	go func() {
		r, err := AwaitPermit(ctx, sessions, c, longest)
		done <- reserved{r, err}
	}()
	return done
}

// limited connects con_1 with this many permits.
func (g *testGateway) limited(t *testing.T, permits int) (*testConnector, *gate) {
	t.Helper()
	h, hello := newGate(), hello("con_1")
	hello.MaxRequests = permits
	c, err := g.dial(t, g.socket(t), hello, h)
	if err != nil {
		t.Fatal(err)
	}
	c.beats()
	time.Sleep(publishTime)
	return c, h
}

// use sends a request with a permit.
func (r reserved) use(t *testing.T, c fair.Client) {
	t.Helper()
	if r.err != nil {
		t.Fatal(r.err)
	}
	a, err := r.Send(post("{}").WithContext(t.Context()), c)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	if _, err := io.Copy(io.Discard, a.Body); err != nil {
		t.Error(err)
	}
}

// TestWaitForPermit waits for the permit of a connector, at its gateway and over a hop, until each
// of the ways in which a wait can end.
func TestWaitForPermit(t *testing.T) {
	gone := errors.New("the key was revoked")
	for name, test := range map[string]struct {
		end  func(t *testing.T, with *testGateway, c *testConnector, h *gate, leave context.CancelCauseFunc)
		want error
	}{
		"a permit is free": {func(_ *testing.T, _ *testGateway, _ *testConnector, h *gate, _ context.CancelCauseFunc) {
			close(h.open)
		}, nil},
		"the client leaves": {func(_ *testing.T, _ *testGateway, _ *testConnector, _ *gate, leave context.CancelCauseFunc) {
			leave(gone)
		}, gone},
		"the wait is too long": {func(*testing.T, *testGateway, *testConnector, *gate, context.CancelCauseFunc) {
			time.Sleep(longest)
		}, link.ErrNoCredit},
		"the connector drains": {func(t *testing.T, _ *testGateway, c *testConnector, _ *gate, _ context.CancelCauseFunc) {
			c.send(t, link.Drain{})
		}, link.ErrNotSent},
		"the connector is lost": {func(_ *testing.T, _ *testGateway, c *testConnector, _ *gate, _ context.CancelCauseFunc) {
			_ = c.conn.Close(link.CloseNone, "")
		}, link.ErrNotSent},
		"the connector is removed": {func(_ *testing.T, with *testGateway, _ *testConnector, _ *gate,
			_ context.CancelCauseFunc,
		) {
			with.Disconnect("con_1", link.CloseRemoved)
		}, link.ErrNotSent},
	} {
		for _, at := range []string{"with", "entry"} {
			t.Run(name+" at "+at, func(t *testing.T) {
				inCluster(t, func(t *testing.T, newEdge func(string) *testGateway) {
					entry, with := newEdge("a"), newEdge("b")
					with.joins(t, entry, "b")
					c, h := with.limited(t, 1)
					running := background(t, with.mustSession(t, "con_1"))
					<-h.started
					from := map[string]*testGateway{"entry": entry, "with": with}[at].mustSession(t, "con_1")
					permits := with.mustSession(t, "con_1").permits
					ctx, leave := context.WithCancelCause(t.Context())
					wait := awaitPermit(ctx, clientA, from)
					synctest.Wait()
					time.Sleep(publishTime)
					if len(wait) > 0 {
						t.Fatalf("it does not wait: %v", (<-wait).err)
					}
					test.end(t, with, c, h, leave)
					got := <-wait
					if got.err == nil && test.want != nil { // the running request has ended before the session
						_, got.err = got.Send(post("{}"), clientA)
					}
					if !errors.Is(got.err, test.want) {
						t.Errorf("the wait ended with %v, want %v", got.err, test.want)
					}
					if test.want == nil {
						got.use(t, clientA)
					} else {
						close(h.open)
					}
					<-running
					leave(nil)
					time.Sleep(publishTime)
					for range 2 { // nothing is left
						p, err := permits.Enter(t.Context(), clientB, 0)
						if err != nil {
							t.Fatal("a permit was lost")
						}
						p.Leave()
					}
					if n := from.active.Load(); n != 0 {
						t.Errorf("%d requests run", n)
					}
				})
			})
		}
	}
}

// TestPermitOfTheFirst waits for a permit of two connectors, and gives that of the other one back.
func TestPermitOfTheFirst(t *testing.T) {
	inCluster(t, func(t *testing.T, newEdge func(string) *testGateway) {
		g := newEdge("a")
		var sessions []*Session
		for _, id := range []string{"con_1", "con_2"} {
			hello := hello(id)
			hello.MaxRequests = 1
			c, err := g.dial(t, g.socket(t), hello, echo)
			if err != nil {
				t.Fatal(err)
			}
			c.beats()
			sessions = append(sessions, g.mustSession(t, id))
		}
		var taken []fair.Permit
		for _, s := range sessions {
			p, err := s.acquire(t.Context(), clientB, 0)
			if err != nil {
				t.Fatal(err)
			}
			taken = append(taken, p)
		}
		wait := awaitPermit(t.Context(), clientA, sessions...)
		synctest.Wait()
		taken[1].Leave()
		taken[0].Leave()
		got := <-wait
		got.use(t, clientA)
		unused := <-awaitPermit(t.Context(), clientA, sessions...)
		unused.Leave()
		for _, s := range sessions {
			p, err := s.acquire(t.Context(), clientB, 0)
			if err != nil {
				t.Errorf("%s: %v", s.Connector(), err)
			}
			p.Leave()
		}
	})
}

// TestLostStoreAtPeer: a request that waits for a permit at a peer is not sent if that has lost its store
// meanwhile. The permit is free for the next one.
func TestLostStoreAtPeer(t *testing.T) {
	inCluster(t, func(t *testing.T, newEdge func(string) *testGateway) {
		entry, with := newEdge("a"), newEdge("b")
		with.joins(t, entry, "b")
		_, h := with.limited(t, 1)
		here, there := entry.mustSession(t, "con_1"), with.mustSession(t, "con_1")
		permit := <-awaitPermit(t.Context(), clientA, there)
		waits := awaitPermit(t.Context(), clientB, here)
		time.Sleep(time.Second)
		with.lost.Store(true)
		permit.Leave()
		if r := <-waits; !errors.Is(r.err, link.ErrNotSent) {
			t.Errorf("without the store: %v", r.err)
		}
		with.lost.Store(false)
		close(h.open)
		next := <-awaitPermit(t.Context(), clientB, here)
		next.use(t, clientB)
	})
}

// TestOwnerOverHop: the gateway with the tunnel divides its permits among owners, whichever gateway
// their requests come from.
func TestOwnerOverHop(t *testing.T) {
	inCluster(t, func(t *testing.T, newEdge func(string) *testGateway) {
		entry, with := newEdge("a"), newEdge("b")
		with.joins(t, entry, "b")
		_, h := with.limited(t, 16)
		here, there := entry.mustSession(t, "con_1"), with.mustSession(t, "con_1")
		for i := range 14 {
			go func() {
				if a, err := []*Session{here, there}[i%2].Send(post("{}").WithContext(t.Context()), clientA); err == nil {
					_, _ = io.Copy(io.Discard, a.Body)
					_ = a.Body.Close()
				}
			}()
		}
		for range 14 {
			<-h.started
		}
		for _, s := range []*Session{here, there} {
			if _, err := s.Send(post("{}").WithContext(t.Context()), clientA); !errors.Is(err, link.ErrNoCredit) {
				t.Errorf("one more of the same key: %v", err)
			}
		}
		other := <-awaitPermit(t.Context(), clientB, here)
		close(h.open)
		other.use(t, clientB)
	})
}
