package peer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/dial"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/panics"
	"github.com/postern-dev/postern/connector/wait"
)

const (
	pingTime = 500 * time.Millisecond // between two pings
	lostTime = 3 * time.Second        // that a peer may be silent
	sendTime = 5 * time.Second        // that it may take to read a message
)

// opened is an open connection to a peer. Requests of the peer come over it.
type opened struct {
	conn    *dial.Conn
	stream  *quic.Stream
	control *link.Control
}

// run uses the connection until it or ctx ends, and returns why it has ended.
func (o *opened) run(ctx context.Context, log *slog.Logger, l *Links) error {
	defer context.AfterFunc(ctx, func() { _ = o.conn.Close(link.CloseNone, "") })()
	go o.work(log, "accepting requests of a peer", func() { o.serve(l) })
	go o.work(log, "sending a peer the tunnels", func() { o.announce(l) })
	go o.work(log, "pinging a peer", o.ping)
	o.work(log, "reading from a peer", o.receive)
	<-o.conn.Context().Done()
	return context.Cause(o.conn.Context())
}

// send sends a message. The connection ends if the peer does not read it.
func (o *opened) send(m link.Message) error {
	_ = o.stream.SetWriteDeadline(time.Now().Add(sendTime))
	err := o.control.Send(m)
	if err != nil {
		_ = o.conn.Close(link.CloseLost, "")
	}
	return err
}

// work calls f. A panic ends the connection.
func (o *opened) work(log *slog.Logger, doing string, f func()) {
	if panics.Do(log, doing, func() error { f(); return nil }) != nil {
		_ = o.conn.Close(link.CloseLost, "")
	}
}

// ping pings the peer until the connection ends: so both ends notice a silent one.
func (o *opened) ping() {
	for o.send(link.Ping{}) == nil {
		if wait.For(o.conn.Context(), pingTime) != nil {
			return
		}
	}
}

// receive ends the connection when it fails, or when the peer has been silent for too long.
func (o *opened) receive() {
	for {
		_ = o.stream.SetReadDeadline(time.Now().Add(lostTime))
		if _, err := o.control.Receive(); err != nil && !errors.Is(err, link.ErrUnknownMessage) {
			_ = o.conn.Close(link.CloseLost, "")
			return
		}
	}
}

// serve serves requests of the peer until the connection ends.
func (o *opened) serve(l *Links) {
	for {
		stream, err := o.conn.AcceptStream(context.Background())
		if err != nil {
			return
		}
		go l.serve(stream)
	}
}

// announce sends the peer the tunnels here until the connection ends.
func (o *opened) announce(l *Links) {
	if l.announce(o.conn.Context(), o.send) != nil {
		_ = o.conn.Close(link.CloseLost, "")
	}
}
