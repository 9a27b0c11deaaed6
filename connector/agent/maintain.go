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
// finishes its requests. One search for a successor runs at a time. Each event stops it, and
// maintain chooses again.
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
	for {
		var next *session
		searching, stop := context.WithCancel(ctx)
		searched := make(chan struct{})
		go func() {
			defer close(searched)
			defer panics.Recover(l.Logger, "establishing another tunnel")
			next = l.search(searching, ctx, s)
		}()
		var err error
		over := false
		select {
		case <-searched:
			if next == nil && ctx.Err() != nil { // the tunnel drains
				err, over = <-ended, true
			}
		case err = <-ended:
			over = true
		}
		stop()
		<-searched // a hello that was sent may have replaced the tunnel
		switch {
		case next != nil:
			return ending{}, next
		case over:
			return ending{err: err, lived: max(time.Since(start), 1)}, nil
		}
	}
}

// search establishes a successor over QUIC of a tunnel over a WebSocket. It returns nil when searching ends before it
// has sent a hello, or when ctx ends.
func (l *leg) search(searching, ctx context.Context, s *session) *session {
	switch {
	case s.conn.Context().Err() != nil:
	case l.config.transport == config.TransportAuto && s.conn.Transport() == link.TransportWebSocket:
		return l.upgradeToQUIC(searching, ctx, s)
	}
	<-searching.Done()
	return nil
}

// upgradeToQUIC tries QUIC periodically, and switches to it when it works.
func (l *leg) upgradeToQUIC(searching, ctx context.Context, s *session) *session {
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
