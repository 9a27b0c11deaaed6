package agent

import (
	"context"
	"time"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/dial"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/panics"
	"github.com/postern-dev/postern/connector/wait"
)

const (
	// On a WebSocket, QUIC is tried again after pauses that double.
	firstUpgrade = time.Minute
	lastUpgrade  = 10 * time.Minute
)

// maintain serves a tunnel until it ends or a successor takes over. The old tunnel then
// finishes its requests.
func (l *leg) maintain(ctx context.Context, s *session) (ending, *session) {
	start := time.Now()
	if l.webDelay = webSocketDelay; s.conn.Transport() == link.TransportWebSocket {
		l.webDelay = 0
	}
	ended := make(chan error, 1)
	l.tunnels.Go(func() {
		err := panics.Do(l.Logger, "serving a tunnel", func() error { return s.serve(ctx) })
		s.close(link.CloseNone, err) // after a panic
		ended <- err
	})
	searching, stop := context.WithCancel(ctx)
	defer stop()
	var next *session
	searched := make(chan struct{})
	go func() {
		defer close(searched)
		defer panics.Recover(l.Logger, "establishing another tunnel")
		next = l.upgradeToQUIC(searching, ctx, s)
	}()
	var err error
	select {
	case err = <-ended:
		stop()
		<-searched // a hello that was sent may have replaced the tunnel
	case <-searched:
		if next == nil {
			err = <-ended
		}
	}
	if next != nil {
		return ending{}, next
	}
	return ending{err: err, lived: max(time.Since(start), 1)}, nil
}

// upgradeToQUIC tries QUIC periodically if the tunnel is over a WebSocket, and switches to it when it works. For
// searching and ctx see race: it returns nil at their end.
func (l *leg) upgradeToQUIC(searching, ctx context.Context, s *session) *session {
	if l.config.transport != config.TransportAuto || s.conn.Transport() != link.TransportWebSocket {
		return nil
	}
	for pause := l.firstUpgrade; ; pause = min(2*pause, lastUpgrade) {
		if wait.For(searching, pause/2+l.retry.jitter(pause)) != nil {
			return nil
		}
		next, err := l.race(searching, ctx, s,
			[]dial.Runner{{Dial: l.config.quicTo(l.target()).Dial, Limit: l.dialLimit}})
		if err == nil {
			l.Logger.Info("QUIC works; switching from the WebSocket", "session", s.welcome.Session)
			s.leave()
			return next
		}
		l.Logger.Debug("QUIC still does not work", "reason", Reason(err))
	}
}
