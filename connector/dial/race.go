package dial

import (
	"context"
	"errors"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

const (
	// answeredTimeout is for a gateway that has sent anything: it lets so many in
	// at a time, and keeps the others waiting for up to 8 s.
	answeredTimeout = 20 * time.Second
	// answeredDelay is that of the next transport once anything has come back. A
	// gateway may keep a handshake waiting, and would have twice the work; but
	// something in between may also have let only one packet through.
	answeredDelay = 12 * time.Second
)

// Runner is one transport in a race.
type Runner struct {
	Dial  func(context.Context, *Activity) (*Conn, error)
	Limit time.Duration // while nothing comes back
	Delay time.Duration // after the start of the runner before it
}

// dialled is what one attempt led to.
type dialled struct {
	conn *Conn
	err  error
}

// run dials. A gateway that has sent anything has longer to go on: what was done
// for the handshake so far, here and there, would be lost.
func (r *Runner) run(ctx context.Context, activity *Activity, result chan<- dialled) {
	ctx, cancel := context.WithTimeout(ctx, max(r.Limit, answeredTimeout))
	defer cancel()
	go r.watch(ctx, cancel, activity)
	conn, err := r.Dial(ctx, activity)
	result <- dialled{conn, err}
}

// watch cancels an attempt that meets nothing but silence.
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

// Race dials with the runners, in the order of preference, and calls use with the
// first connection. Another one is used only if that fails other than by a
// [link.Deny]. With final set, a busy gateway's refusal ends the race, unless another
// runner was started before.
func Race(ctx context.Context, runners []Runner, final bool, use func(*Conn) error) error {
	racing, stop := context.WithCancel(ctx)
	results := make(chan dialled, len(runners))
	started, ended := 0, 0
	next := time.NewTimer(0)
	defer func() {
		next.Stop()
		stop()
		go discard(results, started-ended)
	}()
	activities := []*Activity{newActivity(), newActivity()}
	answered := activities[0].received
	var errs []error
	for ended < len(runners) {
		select {
		case <-next.C:
			if started < len(runners) {
				go runners[started].run(racing, activities[started], results)
				started++
			}
			if started < len(runners) {
				next.Reset(runners[started].Delay)
			}
		case <-answered:
			answered = nil
			if started < len(runners) {
				next.Reset(answeredDelay)
			}
		case r := <-results:
			ended++
			if r.err == nil {
				err := use(r.conn)
				if err == nil || errors.As(err, new(link.Deny)) {
					return err
				}
				r.err = err
			}
			errs = append(errs, r.err)
			busy := errors.Is(r.err, ErrBusy) || errors.Is(r.err, ErrUnfinished)
			if busy && final && started == ended {
				return r.err
			}
			if started < len(runners) {
				next.Reset(0)
			}
		}
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// discard closes the connections of n runners that were too late.
func discard(results <-chan dialled, n int) {
	for range n {
		if r := <-results; r.err == nil {
			_ = r.conn.Close(link.CloseNone, "")
		}
	}
}
