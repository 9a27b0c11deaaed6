package dial

import (
	"context"
	"errors"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

const (
	// answeredTimeout applies once the gateway has answered: it limits concurrent
	// handshakes, and keeps the others waiting for up to 8 s.
	answeredTimeout = 20 * time.Second
	// answeredDelay is the delay of the next transport once the gateway has answered. It
	// may keep a handshake waiting. But a firewall may also have let only one packet
	// through.
	answeredDelay = 12 * time.Second
)

// Runner is one transport in a race.
type Runner struct {
	Dial  func(context.Context, *Activity) (*Conn, error)
	Limit time.Duration // without any answer
	Delay time.Duration // after the start of the previous runner
}

// dialled is the result of one attempt.
type dialled struct {
	conn *Conn
	err  error
}

// run dials. The limit is longer once the gateway has answered, as the work on the
// handshake would be lost.
func (r *Runner) run(ctx context.Context, activity *Activity) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, max(r.Limit, answeredTimeout))
	defer cancel()
	go r.watch(ctx, cancel, activity)
	return r.Dial(ctx, activity)
}

// watch cancels an attempt without an answer.
func (r *Runner) watch(ctx context.Context, cancel context.CancelFunc, activity *Activity) {
	for wait := r.Limit; ; {
		select {
		case <-ctx.Done():
			return
		case <-activity.received:
			return
		case <-time.After(wait):
		}
		if wait = r.Limit - activity.silence(); wait <= 0 {
			cancel()
			return
		}
	}
}

// Race dials with the runners in order of preference, and calls use with the first
// connection. If use fails, other than with a [link.Deny], it tries the next one. If final
// is set, a refusal by a busy gateway ends the race unless another runner has started.
func Race(ctx context.Context, runners []Runner, final bool, use func(*Conn) error) error {
	attempts := make([]attempt, len(runners))
	activities := []*Activity{newActivity(), newActivity()}
	for i, r := range runners {
		attempts[i] = attempt{func(ctx context.Context) (*Conn, error) { return r.run(ctx, activities[i]) }, r.Delay}
	}
	_, err := stagger(ctx, attempts, activities[0].received, answeredDelay, func(conn *Conn, err error, running int) (bool, error) {
		if err == nil {
			if err = use(conn); err == nil || errors.As(err, new(link.Deny)) {
				return true, err
			}
		}
		busy := errors.Is(err, ErrBusy) || errors.Is(err, ErrUnfinished)
		return busy && final && running == 0, err
	})
	return err
}

// attempt is one of several attempts to connect.
type attempt struct {
	dial  func(context.Context) (*Conn, error)
	delay time.Duration // after the start of the previous attempt
}

// stagger starts each attempt after its delay, or as soon as another one has failed. After
// an answer, the next attempt waits for answeredDelay. judge gets each result and the
// number of running attempts, and reports whether to stop. Other connections are closed.
func stagger(
	ctx context.Context, attempts []attempt, answered <-chan struct{}, answeredDelay time.Duration,
	judge func(conn *Conn, err error, running int) (last bool, _ error),
) (*Conn, error) {
	ctx, stop := context.WithCancel(ctx)
	results := make(chan dialled, len(attempts))
	waiting, running := attempts, 0
	next := time.NewTimer(0)
	defer func() {
		next.Stop()
		stop()
		go discard(results, running)
	}()
	wait := func(d time.Duration) {
		if len(waiting) > 0 {
			next.Reset(d)
		}
	}
	var errs []error
	for len(errs) < len(attempts) {
		select {
		case <-next.C:
			go func(a attempt) {
				conn, err := a.dial(ctx)
				results <- dialled{conn, err}
			}(waiting[0])
			waiting, running = waiting[1:], running+1
			if len(waiting) > 0 {
				wait(waiting[0].delay)
			}
		case <-answered:
			answered = nil
			wait(answeredDelay)
		case r := <-results:
			running--
			last, err := judge(r.conn, r.err, running)
			if last {
				return r.conn, err
			}
			errs = append(errs, err)
			wait(0)
		}
	}
	if len(errs) == 1 {
		return nil, errs[0]
	}
	return nil, errors.Join(errs...)
}

// discard closes the connections of the n attempts still running.
func discard(results <-chan dialled, n int) {
	for range n {
		if r := <-results; r.err == nil {
			_ = r.conn.Close(link.CloseNone, "")
		}
	}
}
