package peer

import (
	"bytes"
	"context"
	"io"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/dial"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// TestLinksOfGonePeers: a peer that has left the cluster is forgotten.
func TestLinksOfGonePeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Pin: func() string { return "" }})
		l.Close() // so that nothing is dialed
		for i := range 11 {
			if _, err := l.Ask(t.Context(), store.Edge{Name: "edge-" + strconv.Itoa(i), Peer: "127.0.0.1:1"}); err == nil {
				t.Fatal("a peer answers")
			}
			if i%2 == 0 {
				time.Sleep(2 * goneTime)
			}
		}
		if len(l.links) != 2 {
			t.Errorf("%d peers are known, want the two of the last minutes", len(l.links))
		}
	})
}

// connect returns a connection to a peer that reads and sends nothing.
func connect(t *testing.T) *opened {
	t.Helper()
	key, err := link.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	cert, pin, err := link.Identity(key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := quic.ListenAddr("127.0.0.1:0", link.GatewayTLS(cert), link.GatewayQUIC())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	conn, err := quic.DialAddr(t.Context(), listener.Addr().String(), link.ConnectorTLS("", pin), link.ConnectorQUIC(0))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := conn.OpenStream()
	if err != nil {
		t.Fatal(err)
	}
	return &opened{conn: &dial.Conn{Conn: &link.Conn{Conn: conn}}, stream: stream, control: link.NewControl(stream)}
}

// unread is a stream to a peer that answers, and does not read.
type unread struct {
	io.Reader
	writing chan struct{}
	life    context.Context
}

func (u unread) Write([]byte) (int, error) {
	u.writing <- struct{}{}
	<-u.life.Done()
	return 0, u.life.Err()
}

// TestAnswerWhileSending: an answer is passed on while the peer does not read the next question.
func TestAnswerWhileSending(t *testing.T) {
	t.Parallel()
	o := connect(t)
	var answers bytes.Buffer
	if err := link.NewControl(&answers).Send(link.Pong{Instance: "first"}); err != nil {
		t.Fatal(err)
	}
	there := unread{io.MultiReader(&answers, eofAfter{t.Context()}), make(chan struct{}), o.conn.Context()}
	o.control = link.NewControl(there)
	first := make(chan link.Pong, 1)
	o.asked = append(o.asked, first)
	go func() { _, _ = o.ask(t.Context()) }()
	wait.For(t, there.writing, "the second question is written")
	go o.receive()
	if pong := wait.For(t, first, "the answer to the first question"); pong.Instance != "first" {
		t.Errorf("%+v", pong)
	}
	_ = o.conn.Close(link.CloseNone, "")
}

// eofAfter is a stream without data that ends with a context.
type eofAfter struct{ context.Context }

func (e eofAfter) Read([]byte) (int, error) {
	<-e.Done()
	return 0, io.EOF
}

// closedHub is a hub that has been closed.
type closedHub struct{ announced atomic.Int64 }

func (h *closedHub) Announce(context.Context, func(link.Message) error) error {
	h.announced.Add(1)
	return nil
}

func (*closedHub) Relay(*quic.Stream) {}

// TestAnnounceOfClosedHub: a hub that is closed is asked once, and its successor, too.
func TestAnnounceOfClosedHub(t *testing.T) {
	t.Parallel()
	o, hubs := connect(t), [2]closedHub{}
	var looks atomic.Int64
	go o.announce(func() Hub { return &hubs[min(looks.Add(1)/5, 1)] })
	wait.Until(t, "looks for a hub", func() bool { return looks.Load() >= 10 })
	_ = o.conn.Close(link.CloseNone, "")
	if a, b := hubs[0].announced.Load(), hubs[1].announced.Load(); a != 1 || b != 1 {
		t.Errorf("the hubs were asked %d and %d times", a, b)
	}
}
