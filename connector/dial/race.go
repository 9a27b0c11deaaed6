package dial

import (
	"context"
	"errors"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/panics"
)

// Runner is one transport in a race.
type Runner struct {
	Dial  func(context.Context) (*link.Conn, error)
	Limit time.Duration
	Delay time.Duration // after the start of the previous runner
}

// Race dials with the runners in order of preference, and calls use with the first
// connection. If use fails with an error other than a [link.Deny], the next runner follows. If final
// is set, a refusal by a busy gateway ends the race unless another runner has started.
func Race(ctx context.Context, runners []Runner, final bool, use func(*link.Conn) error) error {
	attempts := make([]attempt, len(runners))
	for i, r := range runners {
		attempts[i] = attempt{func(ctx context.Context) (*link.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, r.Limit)
			defer cancel()
			return r.Dial(ctx)
		}, r.Delay}
	}
	_, err := stagger(ctx, attempts, func(conn *link.Conn, err error, running int) (bool, error) {
		if err == nil {
			if err = use(conn); err == nil || errors.As(err, new(link.Deny)) {
				return true, err
			}
		}
		return errors.Is(err, ErrBusy) && final && running == 0, err
	})
	return err
}

// attempt is one of several attempts to connect.
type attempt struct {
	dial  func(context.Context) (*link.Conn, error)
	delay time.Duration // after the start of the previous attempt
}

// try dials. A panic is its error.
func (a attempt) try(ctx context.Context) (conn *link.Conn, err error) {
	defer func() {
		if p := panics.Caught(recover()); p != nil {
			err = p
		}
	}()
	return a.dial(ctx)
}

// stagger starts each attempt after its delay, or as soon as another one has failed. isFinal gets each
// result and the number of running attempts, and reports whether to stop. Other connections are closed.
func stagger(
	ctx context.Context, attempts []attempt,
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
	for started := 0; len(errs) < len(attempts); {
		select {
		case <-next.C:
			if started == len(attempts) {
				continue
			}
			go func(a attempt) {
				conn, err := a.try(ctx)
				select {
				case results <- result{conn, err}:
				case <-ended:
					if err == nil {
						_ = conn.Close(link.CloseNone, "")
					}
				}
			}(attempts[started])
			if started++; started < len(attempts) {
				next.Reset(attempts[started].delay)
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
