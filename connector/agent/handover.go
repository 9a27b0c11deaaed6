package agent

import (
	"context"
	"errors"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

const (
	// While a WebSocket is all there is, QUIC is tried again after pauses that
	// double.
	firstUpgrade = time.Minute
	lastUpgrade  = 10 * time.Minute
)

var errHandover = errors.New("the gateway did not take the change to QUIC")

// handover is what the change to a better transport came to. Without a
// successor the old tunnel takes no requests any more all the same.
type handover struct {
	next *session
	err  error
}

// tend serves a tunnel until it ends, or until its successor takes over, while
// the old one finishes its requests.
func (a *Agent) tend(ctx context.Context, s *session) (ending, *session) {
	start := time.Now()
	lived := func() time.Duration { return max(time.Since(start), 1) }
	onWeb := s.conn.Transport() == link.TransportWebSocket
	a.webDelay = webSocketDelay
	if onWeb {
		a.webDelay = 0
	}
	ended := make(chan error, 1)
	a.tunnels.Go(func() { ended <- s.serve(ctx) })

	searching, stop := context.WithCancel(ctx)
	defer stop()
	found := make(chan handover, 1)
	if onWeb && a.transport == TransportAuto {
		go a.seek(searching, ctx, s, found)
	} else {
		close(found)
	}
	select {
	case h, ok := <-found:
		if ok {
			return ending{err: h.err, lived: lived()}, h.next
		}
	case err := <-ended:
		stop()
		if h, ok := <-found; ok && h.next != nil {
			return ending{}, h.next
		}
		return a.after(err, lived()), nil
	}
	return a.after(<-ended, lived()), nil
}

// after returns the ending of a tunnel. One that fell silent may have lost its
// way for UDP: the next attempt does not wait for QUIC as long.
func (a *Agent) after(err error, lived time.Duration) ending {
	if errors.Is(err, errNoPong) || link.Silent(err) {
		a.webDelay = min(a.webDelay, suspectDelay)
	}
	return ending{err: err, lived: lived}
}

// seek tries QUIC from time to time, and changes to it when it works. search
// ends with the tunnel, and stops it unless the change has begun.
func (a *Agent) seek(search, ctx context.Context, s *session, found chan<- handover) {
	defer close(found)
	for pause := a.firstUpgrade; ; pause = min(2*pause, lastUpgrade) {
		select {
		case <-search.Done():
			return
		case <-time.After(pause/2 + a.retry.jitter(pause)):
		}
		dialling, cancel := context.WithTimeout(search, longDialTimeout)
		conn, err := a.dialer.dial(dialling)
		cancel()
		if err != nil {
			a.logger.Debug("QUIC still does not work", "reason", reason(err))
			continue
		}
		if search.Err() != nil {
			_ = conn.Close(link.CloseNone, "")
			return
		}
		a.logger.Info("QUIC works; leaving the WebSocket", "session", s.welcome.Session)
		found <- a.change(ctx, s, conn)
		return
	}
}

// change moves from a tunnel to a new connection. The hello on it must not come
// before the gateway has agreed to the drain: it would cut the old tunnel.
func (a *Agent) change(ctx context.Context, s *session, conn link.Conn) handover {
	give := func(err error) handover {
		_ = conn.Close(link.CloseNone, "")
		return handover{err: err}
	}
	if err := s.depart(); err != nil {
		s.close(link.CloseNone, err)
		return give(err)
	}
	select {
	case <-s.agreed:
	case <-s.conn.Context().Done():
		return give(s.ended())
	case <-time.After(a.pongTimeout):
		s.close(link.CloseLost, errHandover)
		return give(errHandover)
	}
	next := newSession(a, conn)
	answer, err := next.introduceWithin(ctx, firstDialTimeout)
	if err == nil {
		err = next.begin(answer)
	}
	if err != nil {
		return handover{err: err}
	}
	return handover{next: next}
}
