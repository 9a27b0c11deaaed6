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
	a.webDelay = webSocketDelay
	if s.conn.Transport() == link.TransportWebSocket {
		a.webDelay = 0
	}
	ended := make(chan error, 1)
	a.tunnels.Go(func() { ended <- s.serve(ctx) })

	search := a.search(ctx, s)
	defer func() { search.stop() }()
	for {
		select {
		case h := <-search.found:
			return ending{err: h.err, lived: lived()}, h.next
		case <-a.reload.wake:
			// Of a search and a reload only one may change the tunnel.
			if h, begun := search.stop(); begun {
				a.wakeReload()
				return ending{err: h.err, lived: lived()}, h.next
			}
			if h, done := a.renew(ctx, s); done {
				return ending{err: h.err, lived: lived()}, h.next
			}
			search = a.search(ctx, s)
		case err := <-ended:
			if h, begun := search.stop(); begun && h.next != nil {
				return ending{}, h.next
			}
			if next, _ := a.waiting(); next != nil {
				a.wakeReload() // no pause before it is tried
			}
			return a.after(err, lived()), nil
		}
	}
}

// search looks for a better transport.
type search struct {
	found  <-chan handover // nil: there is nothing better
	cancel context.CancelFunc
}

// search begins to look for a better transport than that of a tunnel.
func (a *Agent) search(ctx context.Context, s *session) search {
	if s.conn.Transport() != link.TransportWebSocket || a.transport != TransportAuto {
		return search{cancel: func() {}}
	}
	searching, cancel := context.WithCancel(ctx)
	found := make(chan handover, 1)
	go a.seek(searching, ctx, s, found)
	return search{found, cancel}
}

// stop ends the search, and returns the change that it had begun, if it had.
func (s *search) stop() (handover, bool) {
	s.cancel()
	if s.found == nil {
		return handover{}, false
	}
	h, begun := <-s.found
	s.found = nil
	return h, begun
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
