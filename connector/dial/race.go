package dial

import (
	"context"
	"errors"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/panics"
)

// Runner is one of several attempts to connect, such as a transport or an address.
type Runner struct {
	Dial  func(context.Context) (*link.Conn, error)
	Limit time.Duration // 0: that of the context
	Delay time.Duration // after the start of the previous runner
}

// Race dials with the runners in order of preference, and calls use with the first
// connection. If use fails with an error other than a [link.Deny], the next runner follows. If final
// is set, a refusal by a busy gateway ends the race unless another runner has started.
func Race(ctx context.Context, runners []Runner, final bool, use func(*link.Conn) error) error {
	_, err := stagger(ctx, runners, func(conn *link.Conn, err error, running int) (bool, error) {
		if err == nil {
			if err = use(conn); err == nil || errors.As(err, new(link.Deny)) {
				return true, err
			}
		}
		return errors.Is(err, ErrBusy) && final && running == 0, err
	})
	return err
}

// try dials. A panic is its error.
func (r Runner) try(ctx context.Context) (conn *link.Conn, err error) {
	defer func() {
		if p := panics.Caught(recover()); p != nil {
			err = p
		}
	}()
	if r.Limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.Limit)
		defer cancel()
	}
	return r.Dial(ctx)
}

// stagger starts each runner after its delay, or as soon as another one has failed. isFinal gets each
// result and the number of running ones, and reports whether to stop. Other connections are closed.
func stagger(
	ctx context.Context, runners []Runner,
	isFinal func(conn *link.Conn, err error, running int) (last bool, _ error),
) (*link.Conn, error) {
	type result struct {
		conn *link.Conn
		err  error
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	results, ended := make(chan result), make(chan struct{})
	defer close(ended)
	next := time.NewTimer(0)
	defer next.Stop()
	var errs []error
	for started := 0; len(errs) < len(runners); {
		select {
		case <-next.C:
			if started == len(runners) {
				continue
			}
			go func(r Runner) {
				conn, err := r.try(ctx)
				select {
				case results <- result{conn, err}:
				case <-ended:
					if err == nil {
						_ = conn.Close(link.CloseNone, "")
					}
				}
			}(runners[started])
			if started++; started < len(runners) {
				next.Reset(runners[started].Delay)
			}
		case r := <-results:
			last, err := isFinal(r.conn, r.err, started-len(errs)-1)
			if last {
				return r.conn, err
			}
			errs = append(errs, err)
			next.Reset(0)
		}
	}
	if len(errs) == 1 {
		return nil, errs[0]
	}
	return nil, errors.Join(errs...)
}
