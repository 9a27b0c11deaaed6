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

var errNoPeer = errors.New("it has no connection to this one")

// Open opens a stream to a peer itself, which begins with [link.Ask].
func (h *Hub) Open(peer string) (*quic.Stream, error) {
	h.mu.RLock()
	e := h.edges[peer]
	h.mu.RUnlock()
	if e == nil {
		return nil, errNoPeer
	}
	return e.conn.OpenStream()
}

// Doubt has other tunnels of a connector take precedence over those at a peer, which does not answer,
// until it sends a message.
func (h *Hub) Doubt(peer string) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if e := h.edges[peer]; e != nil {
		e.lastMessage.Store(0)
	}
}

// Ask sends a message to a peer itself, and has read read the answer, until ctx ends. What read
// leaves of it is dropped.
func (h *Hub) Ask(ctx context.Context, peer string, m link.Message, read func(io.Reader) error) error {
	if err := h.ask(ctx, peer, m, read); err != nil {
		return fmt.Errorf("asking the gateway %q: %w", peer, err)
	}
	return nil
}

func (h *Hub) ask(ctx context.Context, peer string, m link.Message, read func(io.Reader) error) error {
	stream, err := h.Open(peer)
	if err != nil {
		return err
	}
	defer link.Refuse(stream, link.CodeCancelled)
	defer context.AfterFunc(ctx, func() { _ = stream.SetDeadline(time.Unix(1, 0)) })()
	if err := link.Ask(stream, m); err != nil {
		return err
	}
	err = read(stream)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
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
