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

// handover is what the change to another connection came to. Without a successor
// the old tunnel takes no requests any more all the same.
type handover struct {
	next *session
	err  error
}

// tend serves a tunnel until it ends, or until its successor takes over, while
// the old one finishes its requests.
//
// A successor is a connection that is made beside the tunnel, by a search, of
// which there is one at a time. What for decides when it says hello, which cuts
// the old tunnel if it is one of the same connector: after the gateway has agreed
// to the drain of the old tunnel, where that is alive (change); after it had its
// moment to come back, where it is silent, and then the hello does not cut it
// (rescue).
func (a *Agent) tend(ctx context.Context, s *session) (ending, *session) {
	start := time.Now()
	lived := func() time.Duration { return max(time.Since(start), 1) }
	a.webDelay = webDelayOf(s)
	ended := make(chan error, 1)
	a.tunnels.Go(func() { ended <- s.serve(ctx) })
	a.remind()
	search := a.search(ctx, s)
	defer func() { search.stop() }()
	for {
		select {
		case h, begun := <-search.found:
			if begun {
				return ending{err: h.err, lived: lived()}, h.next
			}
			search = a.search(ctx, s) // it came to nothing
		case <-a.reload.wake:
			if s.silent.Load() {
				a.remind() // when the tunnel is alive, or replaced
				continue
			}
			if h, begun := search.stop(); begun {
				return ending{err: h.err, lived: lived()}, h.next
			}
			search = a.begin(ctx, s, a.renew)
		case <-s.turned:
			if h, begun := search.stop(); begun {
				return ending{err: h.err, lived: lived()}, h.next
			}
			a.turnedNow(s)
			a.remind()
			search = a.search(ctx, s)
		case err := <-ended:
			if h, begun := search.stop(); begun && h.next != nil {
				return ending{}, h.next
			}
			if a.untried() {
				a.wakeReload() // no pause before it is tried
			}
			return a.after(err, lived()), nil
		}
	}
}

// search looks for a successor of a tunnel.
type search struct {
	found  <-chan handover // closed without one: it came to nothing; nil: there is nothing to look for
	cancel context.CancelFunc
}

// search begins to look for what is better than a tunnel as it is now.
func (a *Agent) search(ctx context.Context, s *session) search {
	_, lossy := s.conn.(*quicTunnel)
	switch {
	case s.silent.Load():
		return a.begin(ctx, s, a.rescue)
	case a.transport != TransportAuto:
	case s.conn.Transport() == link.TransportWebSocket:
		return a.begin(ctx, s, a.seek)
	case lossy:
		return a.begin(ctx, s, a.watch)
	}
	return search{cancel: func() {}}
}

// begin begins a search by a function that returns when its first context ends,
// unless it has begun to change the tunnel, which it does under the second one.
func (a *Agent) begin(ctx context.Context, s *session, look func(search, ctx context.Context, s *session, found chan<- handover)) search {
	searching, cancel := context.WithCancel(ctx)
	found := make(chan handover, 1)
	go func() {
		defer close(found)
		look(searching, ctx, s, found)
	}()
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

// webDelayOf is how long the next attempt waits with a WebSocket.
func webDelayOf(s *session) time.Duration {
	if s.conn.Transport() == link.TransportWebSocket {
		return 0
	}
	return webSocketDelay
}

// after returns the ending of a tunnel. One that fell silent may have lost its
// way for UDP: the next attempt does not wait for QUIC as long.
func (a *Agent) after(err error, lived time.Duration) ending {
	if errors.Is(err, errNoPong) || link.Silent(err) {
		a.webDelay = min(a.webDelay, suspectDelay)
	}
	return ending{err: err, lived: lived}
}

// seek tries QUIC from time to time, and changes to it when it works.
func (a *Agent) seek(search, ctx context.Context, s *session, found chan<- handover) {
	for pause := a.firstUpgrade; ; pause = min(2*pause, lastUpgrade) {
		avoided := max(time.Until(a.loss.until), 0)
		select {
		case <-search.Done():
			return
		case <-time.After(avoided + pause/2 + a.retry.jitter(pause)):
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
// before the gateway has agreed to the drain: it would cut the old tunnel. If there
// is no answer, as on a line that loses much, it comes as beside a silent one.
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
		return a.welcome(ctx, conn, true)
	}
	return a.welcome(ctx, conn, false)
}
