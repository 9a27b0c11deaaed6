package agent

import (
	"context"
	"errors"
	"time"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/dial"
	"github.com/postern-dev/postern/connector/link"
)

const (
	// While a WebSocket is all there is, QUIC is tried again after pauses that
	// double.
	firstUpgrade = time.Minute
	lastUpgrade  = 10 * time.Minute
	// rescuePause bounds the pauses between attempts beside a silent tunnel.
	rescuePause = 2 * time.Second
)

// errTrial ends a tunnel that was left for one of another configuration, which
// then did not work.
var errTrial = errors.New("the new configuration did not work")

// handover is the result of a search: the successor of a tunnel, or why the tunnel was
// left without one.
type handover struct {
	next *session
	err  error
}

// maintain serves a tunnel until it ends, or until its successor takes over, while
// the old one finishes its requests. Successors come from searches, of which there
// is one at a time.
func (a *Agent) maintain(ctx context.Context, s *session) (ending, *session) {
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
			search = a.search(ctx, s) // it found nothing
		case <-a.wake:
			if s.silent.Load() {
				a.remind() // when the tunnel is alive, or replaced
				continue
			}
			if h, begun := search.stop(); begun {
				return ending{err: h.err, lived: lived()}, h.next
			}
			search = a.begin(ctx, s, a.renew)
		case <-s.silenceChanged:
			if h, begun := search.stop(); begun {
				return ending{err: h.err, lived: lived()}, h.next
			}
			a.onSilenceChange(s)
			a.remind()
			search = a.search(ctx, s)
		case err := <-ended:
			if h, begun := search.stop(); begun && h.next != nil {
				return ending{}, h.next
			}
			if next, tried := a.next(); next != nil && !tried {
				a.wakeUp() // no pause before it is tried
			}
			if errors.Is(err, errNoPong) || link.Silent(err) {
				a.webDelay = min(a.webDelay, suspectDelay) // it may have lost its way for UDP
			}
			return ending{err: err, lived: lived()}, nil
		}
	}
}

// webDelayOf is how long the next attempt waits with a WebSocket.
func webDelayOf(s *session) time.Duration {
	if s.conn.Transport() == link.TransportWebSocket {
		return 0
	}
	return webSocketDelay
}

// search looks for a successor of a tunnel.
type search struct {
	found  <-chan handover // closed without one: it found nothing; nil: there is nothing to search for
	cancel context.CancelFunc
}

// search begins to look for what is better than a tunnel as it is now.
func (a *Agent) search(ctx context.Context, s *session) search {
	switch {
	case s.silent.Load():
		return a.begin(ctx, s, a.rescue)
	case s.config.transport != config.TransportAuto:
	case s.conn.Transport() == link.TransportWebSocket:
		return a.begin(ctx, s, a.upgradeToQUIC)
	default:
		return a.begin(ctx, s, a.watchLoss)
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

// move changes to a better connection with the same configuration.
func (a *Agent) move(ctx context.Context, s *session, conn *dial.Conn, found chan<- handover) {
	next, err := a.succeed(ctx, s, a.inUse(), conn)
	found <- handover{next, err}
}

// upgradeToQUIC tries QUIC from time to time, and changes to it when it works.
func (a *Agent) upgradeToQUIC(search, ctx context.Context, s *session, found chan<- handover) {
	for pause := a.firstUpgrade; ; pause = min(2*pause, lastUpgrade) {
		avoided := max(time.Until(a.loss.Until), 0)
		select {
		case <-search.Done():
			return
		case <-time.After(avoided + pause/2 + a.retry.jitter(pause)):
		}
		conn, err := dialOne(search, a.inUse().quic.Dial)
		if search.Err() != nil {
			return
		}
		if err != nil {
			a.Logger.Debug("QUIC still does not work", "reason", reason(err))
			continue
		}
		a.Logger.Info("QUIC works; leaving the WebSocket", "session", s.welcome.Session)
		a.move(ctx, s, conn, found)
		return
	}
}

// dialOne dials with one transport. A connection that comes after the end of ctx is
// closed.
func dialOne(ctx context.Context, open func(context.Context, *dial.Activity) (*dial.Conn, error)) (*dial.Conn, error) {
	limited, cancel := context.WithTimeout(ctx, longDialTimeout)
	defer cancel()
	conn, err := open(limited, nil)
	if err == nil && ctx.Err() != nil {
		_ = conn.Close(link.CloseNone, "")
		return nil, ctx.Err()
	}
	return conn, err
}

// watchLoss looks at what QUIC loses, and changes to a WebSocket where that is too
// much.
func (a *Agent) watchLoss(search, ctx context.Context, s *session, found chan<- handover) {
	stats := func() (sent, lost uint64) {
		s := s.conn.ConnectionStats()
		return s.PacketsSent, s.PacketsLost
	}
	var meter dial.LossMeter
	meter.Span(stats())
	for {
		select {
		case <-search.Done():
			return
		case <-time.After(a.lossSpan):
		}
		if !meter.Span(stats()) || a.loss.Stays(time.Now()) {
			continue
		}
		web := a.inUse().web
		conn, err := dialOne(search, web.DialFast)
		switch {
		case search.Err() != nil:
			return
		case errors.Is(err, dial.ErrNoBBR):
			a.loss.Stay(time.Now())
			a.Logger.Info("QUIC loses too many packets; staying on it all the same", "session", s.welcome.Session, "reason", err,
				"again_in", dial.SlowFor.String(), "fix", "on Linux: `modprobe tcp_bbr`")
			continue
		case err != nil:
			meter.Bad = 0 // another minute
			a.Logger.Debug("QUIC loses many packets, but there is no WebSocket", "reason", reason(err))
			continue
		}
		span := a.loss.Avoid(time.Now())
		a.Logger.Info("QUIC loses too many packets; leaving it for a WebSocket", "session", s.welcome.Session, "for", span.String())
		a.move(ctx, s, conn, found)
		return
	}
}

// rescue dials while a tunnel is silent. The new tunnel takes the requests, and those
// of the silent one may still finish, if its path comes back in time: also those that
// are on their way, of which this side knows nothing yet.
func (a *Agent) rescue(search, ctx context.Context, s *session, found chan<- handover) {
	a.webDelay = min(a.webDelay, suspectDelay) // UDP may be blocked
	for attempt := 0; ; attempt++ {
		if attempt > 0 {
			a.monitor.enter(silent, nil)
		}
		next, answer, err := a.race(search, a.inUse(), permit{rescue, s, ctx})
		if err == nil {
			err = next.begin(answer)
		}
		if err == nil {
			a.Logger.Warn("another tunnel takes the place of one that is silent", "session", s.welcome.Session, "replaced_by", next.welcome.Session)
			found <- handover{next: next}
			return
		}
		if search.Err() != nil {
			return
		}
		end := ending{err: err}
		pause := a.retry.pause(end)
		if kind := kindOf(err); kind != endRefused && kind != endWrongPin {
			pause = min(pause, rescuePause)
		}
		a.report(end, retrying, pause)
		select {
		case <-search.Done():
			return
		case <-time.After(pause):
		}
	}
}

// renew takes the pending configuration: by an update of the tunnel where that is
// enough, else by a new tunnel. While it is dialled, and whenever that fails, the
// tunnel stays.
func (a *Agent) renew(search, ctx context.Context, s *session, found chan<- handover) {
	next, _ := a.next()
	if next == nil || next.samePeer(a.inUse()) && a.update(s, next) {
		return
	}
	// The connection is made first: its failure costs nothing. It is not needed for a
	// tunnel that has ended meanwhile.
	living, stop := context.WithCancel(search)
	defer stop()
	defer context.AfterFunc(s.conn.Context(), stop)()
	conn, err := next.dialAny(living, s.conn.Transport())
	if living.Err() != nil {
		return
	}
	if err != nil {
		a.putOff(next, err)
		return
	}
	if pending, _ := a.next(); pending != next { // a newer one has come, which wakes the tunnel again
		_ = conn.Close(link.CloseNone, "")
		return
	}
	tunnel, err := a.succeed(ctx, s, next, conn)
	if err != nil {
		a.putOff(next, err)
		if s.departed.Load() {
			found <- handover{err: errTrial}
		}
		return
	}
	a.adopt(next)
	found <- handover{next: tunnel}
}

// dialAny makes a connection by the first transport that works, beginning with the
// one that did last.
func (c *configuration) dialAny(ctx context.Context, last string) (*dial.Conn, error) {
	var errs []error
	for _, web := range []bool{last == link.TransportWebSocket, last != link.TransportWebSocket} {
		open := c.quic.Dial
		if web {
			open = c.web.Dial
		}
		if web && c.transport == config.TransportQUIC || !web && c.transport == config.TransportWebSocket {
			continue
		}
		conn, err := dialOne(ctx, open)
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}
