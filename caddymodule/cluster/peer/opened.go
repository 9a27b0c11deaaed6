package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/dial"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/panics"
	"github.com/postern-dev/postern/connector/wait"
)

const (
	lostTime = 3 * time.Second // that a peer may be silent
	sendTime = 5 * time.Second // that it may take to read a message
	hubPause = 100 * time.Millisecond
)

// opened is an open connection to a peer. Requests of the peer come over it.
type opened struct {
	conn    *dial.Conn
	stream  *quic.Stream
	control *link.Control

	mu    sync.Mutex
	asked []chan<- link.Pong // questions without an answer, in their order
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

// ask sends a ping and waits for its answer.
func (o *opened) ask(ctx context.Context) (link.Pong, error) {
	answer := make(chan link.Pong, 1)
	o.mu.Lock()
	o.asked = append(o.asked, answer)
	o.mu.Unlock()
	err := o.send(link.Ping{}) // after the append: each answer is to a ping that is no older than its question
	if err == nil {
		select {
		case pong := <-answer:
			return pong, nil
		case <-ctx.Done():
			err = ctx.Err()
		case <-o.conn.Context().Done():
			err = context.Cause(o.conn.Context())
		}
	}
	return link.Pong{}, fmt.Errorf("asking a gateway: %w", err)
}

// work calls f. A panic ends the connection.
func (o *opened) work(log *slog.Logger, doing string, f func()) {
	if panics.Do(log, doing, func() error { f(); return nil }) != nil {
		_ = o.conn.Close(link.CloseLost, "")
	}
}

// receive passes the answers on until the connection ends. The first ping is soon.
func (o *opened) receive() {
	for {
		_ = o.stream.SetReadDeadline(time.Now().Add(lostTime))
		m, err := o.control.Receive()
		if err != nil && !errors.Is(err, link.ErrUnknownMessage) {
			_ = o.conn.Close(link.CloseLost, "")
			return
		}
		pong, ok := m.(link.Pong)
		if !ok {
			continue
		}
		o.mu.Lock()
		if len(o.asked) > 0 {
			o.asked[0] <- pong
			o.asked = o.asked[1:]
		}
		o.mu.Unlock()
	}
}

// serve serves requests of the peer until the connection ends.
func (o *opened) serve(hub func() Hub) {
	for {
		stream, err := o.conn.AcceptStream(context.Background())
		if err != nil {
			return
		}
		if h := hub(); h != nil {
			go h.Relay(stream)
		} else {
			link.Refuse(stream, link.CodeDraining)
		}
	}
}

// announce sends the peer the tunnels here until the connection ends.
func (o *opened) announce(hub func() Hub) {
	ctx := o.conn.Context()
	for closed := Hub(nil); ctx.Err() == nil; {
		if h := hub(); h != nil && h != closed {
			if err := h.Announce(ctx, o.send); err != nil {
				_ = o.conn.Close(link.CloseLost, "")
			}
			closed = h // a later configuration may bring another one
		}
		_ = wait.For(ctx, hubPause)
	}
}
