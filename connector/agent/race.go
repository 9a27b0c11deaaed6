package agent

import (
	"context"
	"errors"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

const (
	// webSocketDelay is how long QUIC is alone in an attempt. Where a WebSocket
	// was what worked last, it is not; suspectDelay is for a tunnel that fell
	// silent, because UDP is blocked now, or because the gateway is away.
	webSocketDelay = 3 * time.Second
	suspectDelay   = 500 * time.Millisecond
	// heardDelay is that of a WebSocket once anything has come back over UDP. A
	// gateway may keep a handshake waiting, and would have twice the work; but
	// something in between may also have let no more through than a packet.
	heardDelay = 12 * time.Second
	// busyAttempts is how often in a row a refusal over UDP, or an answer without an
	// end, is the gateway's word. Then the WebSocket may try whether it was.
	busyAttempts = 4
	// webSocketExtra is what a WebSocket may take longer: it has four round trips
	// more to make.
	webSocketExtra = 2 * time.Second
)

// runner is one transport in an attempt to connect.
type runner struct {
	open  func(context.Context, *ear) (link.Conn, error)
	limit time.Duration // while nothing comes back
	delay time.Duration // beside those before it
}

// run dials. A gateway that has sent anything has longer to go on: what was done
// for the handshake so far, here and there, would be lost.
func (r *runner) run(ctx context.Context, heard *ear, result chan<- dialled) {
	ctx, cancel := context.WithTimeout(ctx, max(r.limit, heardDialTimeout))
	defer cancel()
	go r.watch(ctx, cancel, heard)
	conn, err := r.open(ctx, heard)
	result <- dialled{conn, err}
}

// watch cancels an attempt that meets nothing but silence.
func (r *runner) watch(ctx context.Context, cancel context.CancelFunc, heard *ear) {
	for wait := r.limit; ; {
		select {
		case <-ctx.Done():
			return
		case <-heard.ch:
			return
		case <-time.After(wait):
		}
		if wait = r.limit - heard.silence(); wait <= 0 {
			cancel()
			return
		}
	}
}

// dial dials until ctx ends.
func (r *runner) dial(ctx context.Context) (link.Conn, error) { return r.open(ctx, newEar()) }

// runners returns the transports to try, in the order of preference.
func (a *Agent) runners() []runner {
	limit := a.retry.dialTimeout()
	quic := runner{open: a.dialer.dialHearing, limit: limit}
	web := runner{open: a.web.dialHearing, limit: limit + webSocketExtra, delay: a.webDelay}
	switch {
	case a.transport == TransportQUIC:
		return []runner{quic}
	case a.transport == TransportWebSocket:
		return []runner{web}
	case a.loss.avoided(time.Now()):
		quic.delay = webSocketDelay
		return []runner{web, quic}
	default:
		return []runner{quic, web}
	}
}

// permit waits until a hello may be said on a connection that is ready for it,
// and returns the context for that; an error means that it is not wanted.
type permit func(ctx context.Context, s *session) (context.Context, error)

// atOnce is the permit where there is no other tunnel.
func atOnce(ctx context.Context, _ *session) (context.Context, error) { return ctx, nil }

// dialled is what one runner came to.
type dialled struct {
	conn link.Conn
	err  error
}

// connect dials and says hello. The first transport with a connection says it;
// another one only if that leads to nothing, as a second hello would end the
// first's tunnel. It returns the answer to the hello.
func (a *Agent) connect(ctx context.Context, may permit) (*session, link.Message, error) {
	runners := a.runners()
	racing, stop := context.WithCancel(ctx)
	results := make(chan dialled, len(runners)) // nobody waits for the losers
	started, ended := 0, 0
	next := time.NewTimer(0)
	defer func() {
		next.Stop()
		stop()
		go discard(results, started-ended)
	}()
	ears := []*ear{newEar(), newEar()}
	heard := ears[0].ch
	var errs []error
	for ended < len(runners) {
		select {
		case <-next.C:
			if started < len(runners) {
				go runners[started].run(racing, ears[started], results)
				started++
			}
			if started < len(runners) {
				next.Reset(runners[started].delay)
			}
		case <-heard:
			heard = nil
			if started < len(runners) {
				next.Reset(heardDelay)
			}
		case r := <-results:
			ended++
			if r.err == nil {
				s, answer, err := a.introduce(ctx, may, r.conn)
				if err == nil || errors.As(err, new(link.Deny)) {
					return s, answer, err
				}
				r.err = err
			}
			errs = append(errs, r.err)
			busy := errors.Is(r.err, errBusy) || errors.Is(r.err, errUnfinished)
			if busy && started == ended && a.retry.failures < busyAttempts {
				return nil, nil, r.err
			}
			if started < len(runners) {
				next.Reset(0)
			}
		}
	}
	if len(errs) == 1 {
		return nil, nil, errs[0]
	}
	return nil, nil, errors.Join(errs...)
}

// introduce says hello on a new connection. The gateway is there, and has had the
// most of the work with it: it may take its time.
func (a *Agent) introduce(ctx context.Context, may permit, conn link.Conn) (*session, link.Message, error) {
	s := newSession(a, conn)
	answer, err := s.introduceWhen(ctx, may, longDialTimeout)
	if err != nil {
		return nil, nil, err
	}
	return s, answer, nil
}

// discard closes the connections of n runners that were too late.
func discard(results <-chan dialled, n int) {
	for range n {
		if r := <-results; r.err == nil {
			_ = r.conn.Close(link.CloseNone, "")
		}
	}
}

// introduceWhen is introduceWithin, as soon as it may be.
func (s *session) introduceWhen(ctx context.Context, may permit, limit time.Duration) (link.Message, error) {
	ctx, err := may(ctx, s)
	if err != nil {
		s.close(link.CloseNone, err)
		return nil, err
	}
	return s.introduceWithin(ctx, limit)
}

// introduceWithin is introduce with a time limit.
func (s *session) introduceWithin(ctx context.Context, limit time.Duration) (link.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return s.introduce(ctx)
}
