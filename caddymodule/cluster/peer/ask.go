package peer

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/panics"
)

// Open opens a stream to a peer, not to a connector there. It begins with [link.Ask].
func (l *Links) Open(peer string) (*quic.Stream, error) {
	if hub := l.hub.Load(); hub != nil {
		return hub.Open(peer)
	}
	return nil, tunnel.ErrNoPeer
}

// Ask sends m to a peer itself and calls read with the answer. The answer ends with an error when ctx
// ends. Ask drops the part of the answer that read has not read.
func (l *Links) Ask(ctx context.Context, peer string, m link.Message, read func(io.Reader) error) error {
	if err := l.ask(ctx, peer, m, read); err != nil {
		return fmt.Errorf("asking the gateway %q: %w", peer, err)
	}
	return nil
}

func (l *Links) ask(ctx context.Context, peer string, m link.Message, read func(io.Reader) error) error {
	stream, err := l.Open(peer)
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

// serve serves a request of a peer on its stream, for a connector or for this gateway itself. A panic
// resets the stream.
func (l *Links) serve(stream *quic.Stream) {
	if panics.Do(l.Logger, "serving a peer", func() error { l.answer(stream); return nil }) != nil {
		link.Refuse(stream, link.CodeInternal)
	}
}

func (l *Links) answer(stream *quic.Stream) {
	_ = stream.SetReadDeadline(time.Now().Add(sendTimeout))
	header, err := link.ReadRelayHeader(stream)
	var asked link.Message
	if err == nil && header.Connector == "" {
		asked, err = link.ReadAsked(stream)
	}
	_ = stream.SetReadDeadline(time.Time{})
	switch hub := l.hub.Load(); {
	case err != nil, hub == nil, asked != nil && l.Gateway.Serving() != nil:
		link.Refuse(stream, link.CodeDraining) // nothing of the request was sent to a connector
	case asked != nil:
		l.Gateway.Serve(stream, asked)
	default:
		hub.Relay(stream, header, l.Gateway.Serving)
	}
}
