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
	// webSocketExtra is what a WebSocket may take longer: it has four round trips
	// more to make.
	webSocketExtra = 2 * time.Second
)

// runner is one transport in an attempt to connect.
type runner struct {
	dial  func(context.Context) (link.Conn, error)
	limit time.Duration
	delay time.Duration // beside those before it
}

// runners returns the transports to try, in the order of preference.
func (a *Agent) runners() []runner {
	limit := a.retry.dialTimeout()
	quic := runner{dial: a.dialer.dial, limit: limit}
	web := runner{dial: a.web.dial, limit: limit + webSocketExtra, delay: a.webDelay}
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
	limit := runners[0].limit
	racing, stop := context.WithCancel(ctx)
	results := make(chan dialled, len(runners)) // nobody waits for the losers
	started, ended := 0, 0
	next := time.NewTimer(0)
	defer func() {
		next.Stop()
		stop()
		go discard(results, started-ended)
	}()
	var errs []error
	for ended < len(runners) {
		select {
		case <-next.C:
			if started < len(runners) {
				r := runners[started]
				started++
				go func() {
					ctx, cancel := context.WithTimeout(racing, r.limit)
					defer cancel()
					conn, err := r.dial(ctx)
					results <- dialled{conn, err}
				}()
			}
			if started < len(runners) {
				next.Reset(runners[started].delay)
			}
		case r := <-results:
			ended++
			if r.err == nil {
				s := newSession(a, r.conn)
				var answer link.Message
				if answer, r.err = s.introduceWhen(ctx, may, limit); r.err == nil {
					return s, answer, nil
				}
				if errors.As(r.err, new(link.Deny)) {
					return nil, nil, r.err
				}
			}
			errs = append(errs, r.err)
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
