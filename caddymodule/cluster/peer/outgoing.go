package peer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/panics"
	"github.com/postern-dev/postern/connector/wait"
)

const (
	pingPause   = 500 * time.Millisecond // between two pings
	lostAfter   = 3 * time.Second        // without a message of the peer
	sendTimeout = 5 * time.Second        // for the peer to read a message
)

// outgoing is an open connection that this gateway has dialed to a peer. The peer's requests for tunnels
// here come over it.
type outgoing struct {
	conn    *link.Conn
	stream  *quic.Stream
	control *link.Control
}

// run uses the connection until it or ctx ends, and returns the reason for its end.
func (o *outgoing) run(ctx context.Context, log *slog.Logger, l *Links) error {
	defer context.AfterFunc(ctx, func() { _ = o.conn.Close(link.CloseNone, "") })()
	go o.work(log, "accepting requests of a peer", func() { o.serve(l) })
	go o.work(log, "sending a peer the tunnels", func() { o.announce(l) })
	go o.work(log, "pinging a peer", o.ping)
	o.work(log, "reading from a peer", o.receive)
	<-o.conn.Context().Done()
	return context.Cause(o.conn.Context())
}

// send sends a message. The connection ends if the peer does not read it.
func (o *outgoing) send(m link.Message) error {
	_ = o.stream.SetWriteDeadline(time.Now().Add(sendTimeout))
	err := o.control.Send(m)
	if err != nil {
		_ = o.conn.Close(link.CloseLost, "")
	}
	return err
}

// work calls f. A panic ends the connection.
func (o *outgoing) work(log *slog.Logger, doing string, f func()) {
	if panics.Do(log, doing, func() error { f(); return nil }) != nil {
		_ = o.conn.Close(link.CloseLost, "")
	}
}

// ping pings the peer until the connection ends, so that both ends notice if the other one is silent.
func (o *outgoing) ping() {
	for o.send(link.Ping{}) == nil {
		if wait.For(o.conn.Context(), pingPause) != nil {
			return
		}
	}
}

// receive reads the pongs of the peer. It closes the connection when that fails or the peer is silent for lostAfter.
func (o *outgoing) receive() {
	for {
		_ = o.stream.SetReadDeadline(time.Now().Add(lostAfter))
		if _, err := o.control.Receive(); err != nil && !errors.Is(err, link.ErrUnknownMessage) {
			_ = o.conn.Close(link.CloseLost, "")
			return
		}
	}
}

// serve serves requests of the peer until the connection ends.
func (o *outgoing) serve(l *Links) {
	for {
		stream, err := o.conn.AcceptStream(context.Background())
		if err != nil {
			return
		}
		go l.serve(stream)
	}
}

// announce sends the tunnels of this gateway to the peer until the connection ends.
func (o *outgoing) announce(l *Links) {
	if l.announce(o.conn.Context(), o.send) != nil {
		_ = o.conn.Close(link.CloseLost, "")
	}
}
