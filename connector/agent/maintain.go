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
	// rescuePause bounds the pauses between attempts in parallel with a silent tunnel.
	rescuePause = 2 * time.Second
)

// errTrial ends a tunnel that was left for one of another configuration, which
// then did not work.
var errTrial = errors.New("the new configuration did not work")

// maintain serves a tunnel until it ends, or until its successor takes over, while
// the old one finishes its requests. Successors come from searches, of which there
// is one at a time.
func (a *Agent) maintain(ctx context.Context, s *session) (ending, *session) {
	start := time.Now()
	a.webDelay = webDelayOf(s)
	ended := make(chan error, 1)
	a.tunnels.Go(func() { ended <- s.serve(ctx) })
	for {
		search := a.begin(ctx, s)
		wake, due := a.wake, a.pendingDue()
		if s.silent.Load() {
			wake, due = nil, nil // a new configuration waits for a tunnel that works
		}
		var err error
		over, changed := false, false
		select {
		case <-search.done: // without a result, if it was to renew
		case <-wake:
		case <-due:
		case <-s.silenceChanged:
			changed = true
		case err = <-ended:
			over = true
		}
		h := search.stop()
		lived := max(time.Since(start), 1)
		switch {
		case h != nil && (h.next != nil || !over):
			return ending{err: h.err, lived: lived}, h.next
		case over:
			if errors.Is(err, errNoPong) || link.Silent(err) {
				a.webDelay = min(a.webDelay, suspectDelay) // it may have lost its way for UDP
			}
			return ending{err: err, lived: lived}, nil
		case changed:
			a.onSilenceChange(s)
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

// handover is the result of a search: the successor of a tunnel, or why the tunnel was
// left without one.
type handover struct {
	next *session
	err  error
}

// search looks for a successor of a tunnel.
type search struct {
	done   chan struct{} // closed at its end; nil: there is nothing to search for
	result *handover     // nil: it has not changed the tunnel
	cancel context.CancelFunc
}

// begin begins to look for something better than a tunnel as it is now.
func (a *Agent) begin(ctx context.Context, s *session) *search {
	look := a.choose(s)
	if look == nil {
		return new(search)
	}
	searching, cancel := context.WithCancel(ctx)
	x := &search{done: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(x.done)
		x.result = look(searching, ctx, s)
	}()
	return x
}

// choose returns the search for a tunnel as it is now, or nil. A search ends with its
// first context, unless it has begun to change the tunnel, which it does under the
// second one.
func (a *Agent) choose(s *session) func(search, ctx context.Context, s *session) *handover {
	_, quic := s.conn.(*dial.QUICConn)
	next, wait := a.pendingWait()
	switch {
	case s.conn.Context().Err() != nil:
		return nil
	case s.silent.Load():
		return a.rescue
	case next != nil && wait <= 0:
		return a.renew
	case s.config.transport != config.TransportAuto:
		return nil
	case s.conn.Transport() == link.TransportWebSocket:
		return a.upgradeToQUIC
	case quic:
		return a.watchLoss
	}
	return nil
}

// stop ends the search, and returns the change that it has made, or nil.
func (x *search) stop() *handover {
	if x.done == nil {
		return nil
	}
	x.cancel()
	<-x.done
	return x.result
}

// move changes to a better connection with the same configuration.
func (a *Agent) move(ctx context.Context, s *session, conn link.Conn) *handover {
	next, err := a.succeed(ctx, s, a.inUse(), conn)
	return &handover{next, err}
}

// upgradeToQUIC tries QUIC from time to time, and changes to it when it works.
func (a *Agent) upgradeToQUIC(search, ctx context.Context, s *session) *handover {
	for pause := a.firstUpgrade; ; pause = min(2*pause, lastUpgrade) {
		avoided := max(time.Until(a.loss.Until), 0)
		select {
		case <-search.Done():
			return nil
		case <-time.After(avoided + pause/2 + a.retry.jitter(pause)):
		}
		conn, err := dialOne(search, a.inUse().quic.Dial)
		if search.Err() != nil {
			return nil
		}
		if err != nil {
			a.Logger.Debug("QUIC still does not work", "reason", reason(err))
			continue
		}
		a.Logger.Info("QUIC works; leaving the WebSocket", "session", s.welcome.Session)
		return a.move(ctx, s, conn)
	}
}

// dialOne dials with one transport. A connection that comes after the end of ctx is
// closed.
func dialOne(ctx context.Context, open func(context.Context, *dial.Activity) (link.Conn, error)) (link.Conn, error) {
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
func (a *Agent) watchLoss(search, ctx context.Context, s *session) *handover {
	quic := s.conn.(*dial.QUICConn)
	var meter dial.LossMeter
	meter.Span(quic.Packets())
	for {
		select {
		case <-search.Done():
			return nil
		case <-time.After(a.lossSpan):
		}
		if !meter.Span(quic.Packets()) || a.loss.Stays(time.Now()) {
			continue
		}
		web := a.inUse().web
		conn, err := dialOne(search, web.DialFast)
		switch {
		case search.Err() != nil:
			return nil
		case errors.Is(err, dial.ErrNoBBR):
			a.loss.Stay(time.Now())
			a.Logger.Info("QUIC loses too many packets; staying on it all the same", "session", s.welcome.Session, "reason", err,
				"again_in", dial.SlowFor.String(), "fix", "on Linux: `modprobe tcp_bbr`")
			continue
		case err != nil:
			meter.Bad = 0 // another minute
			a.Logger.Debug("QUIC loses many packets, but a WebSocket does not work either", "reason", reason(err))
			continue
		}
		span := a.loss.Avoid(time.Now())
		a.Logger.Info("QUIC loses too many packets; leaving it for a WebSocket", "session", s.welcome.Session, "for", span.String())
		return a.move(ctx, s, conn)
	}
}

// rescue dials while a tunnel is silent. The new tunnel takes the requests. Requests
// of the silent one may still finish if its path comes back in time, also those that
// have not arrived yet.
func (a *Agent) rescue(search, ctx context.Context, s *session) *handover {
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
			a.Logger.Warn("another tunnel replaces the silent one", "session", s.welcome.Session, "replaced_by", next.welcome.Session)
			return &handover{next: next}
		}
		if search.Err() != nil {
			return nil
		}
		end := ending{err: err}
		pause := a.retry.pause(end)
		if kind := kindOf(err); kind != endRefused && kind != endWrongPin {
			pause = min(pause, rescuePause)
		}
		a.report(end, retrying, pause)
		select {
		case <-search.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// renew takes the pending configuration: by an update of the tunnel where that is
// enough, else by a new tunnel. While it is dialled, and whenever that fails, the
// tunnel stays.
func (a *Agent) renew(search, ctx context.Context, s *session) *handover {
	next, _ := a.next()
	if next == nil || next.samePeer(a.inUse()) && a.update(s, next) {
		return nil
	}
	// The connection is made first: its failure costs nothing. It is not needed for a
	// tunnel that has ended meanwhile.
	living, stop := context.WithCancel(search)
	defer stop()
	defer context.AfterFunc(s.conn.Context(), stop)()
	conn, err := next.dialAny(living, s.conn.Transport())
	if living.Err() != nil {
		return nil
	}
	if err != nil {
		a.putOff(next, err)
		return nil
	}
	if pending, _ := a.next(); pending != next { // a newer one has come, which wakes the tunnel again
		_ = conn.Close(link.CloseNone, "")
		return nil
	}
	tunnel, err := a.succeed(ctx, s, next, conn)
	if err != nil {
		a.putOff(next, err)
		if s.departed.Load() {
			return &handover{err: errTrial}
		}
		return nil
	}
	a.adopt(next)
	return &handover{next: tunnel}
}

// dialAny connects by the first transport that works, beginning with the last one.
func (c *configuration) dialAny(ctx context.Context, last string) (link.Conn, error) {
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
