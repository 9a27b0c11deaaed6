package peer

import (
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/panics"
)

// serve relays a request of a peer to a connector. A panic resets the stream.
func (l *Links) serve(stream *quic.Stream) {
	if panics.Do(l.Logger, "serving a peer", func() error { l.answer(stream); return nil }) != nil {
		link.Refuse(stream, link.CodeInternal)
	}
}

func (l *Links) answer(stream *quic.Stream) {
	_ = stream.SetReadDeadline(time.Now().Add(sendTimeout))
	header, err := link.ReadRelayHeader(stream)
	_ = stream.SetReadDeadline(time.Time{})
	switch hub := l.hub.Load(); {
	case err != nil, hub == nil:
		link.Refuse(stream, link.CodeDraining) // nothing of the request was sent to a connector
	default:
		hub.Relay(stream, header, l.Gateway.Serving)
	}
}
