package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/link"
)

var (
	errNoPeer   = errors.New("there is no connection of this gateway")
	errAnswered = errors.New("the answer is larger than it may be")
)

// Open sends a message to a peer itself, on a new stream. What follows on the stream depends on the
// message. The caller ends both of its directions.
func (h *Hub) Open(ctx context.Context, peer string, m link.Message) (*quic.Stream, error) {
	h.mu.RLock()
	e := h.edges[peer]
	h.mu.RUnlock()
	if e == nil {
		return nil, fmt.Errorf("asking the gateway %q: %w", peer, errNoPeer)
	}
	stream, err := e.conn.OpenStreamSync(ctx)
	if err == nil {
		if err = link.Ask(stream, m); err == nil {
			return stream, nil
		}
		link.Refuse(stream, link.CodeCancelled)
	}
	return nil, fmt.Errorf("asking the gateway %q: %w", peer, err)
}

// Ask sends a message to a peer itself, and has read read the answer, until ctx ends. What read
// leaves of it is dropped.
func (h *Hub) Ask(ctx context.Context, peer string, m link.Message, read func(io.Reader) error) error {
	stream, err := h.Open(ctx, peer, m)
	if err != nil {
		return err
	}
	defer link.Refuse(stream, link.CodeCancelled)
	stop := context.AfterFunc(ctx, func() {
		_ = stream.SetReadDeadline(time.Unix(1, 0))
	})
	defer stop()
	if err := read(stream); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("asking the gateway %q: %w", peer, err)
	}
	return nil
}

// serveAsked serves a message of a peer to this gateway itself, which is on its stream after an
// empty id of a connector.
func (h *Hub) serveAsked(stream *quic.Stream) {
	_ = stream.SetReadDeadline(time.Now().Add(sendTimeout))
	m, err := link.ReadAsked(stream)
	_ = stream.SetReadDeadline(time.Time{})
	peers := h.options.Load().Peers
	if err != nil || peers == nil {
		link.Refuse(stream, link.CodeDraining)
		return
	}
	peers.Serve(stream, m)
}
