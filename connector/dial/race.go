package dial

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/panics"
)

const (
	// answeredTimeout applies once the gateway has answered: it limits concurrent
	// handshakes, and keeps the others waiting for up to 8 s.
	answeredTimeout = 20 * time.Second
	// answeredDelay is the delay of the next transport once the gateway has answered. The gateway
	// may delay the handshake, but a firewall may also drop all packets after the first.
	answeredDelay = 12 * time.Second
)

// Runner is one transport in a race.
type Runner struct {
	Dial  func(context.Context, *Activity) (*Conn, error)
	Limit time.Duration // without any answer
	Delay time.Duration // after the start of the previous runner
}

// run dials. The limit is longer once the gateway has answered, so that its work on the
// handshake is not lost.
func (r *Runner) run(ctx context.Context, activity *Activity) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, max(r.Limit, answeredTimeout))
	defer cancel()
	activity.watch(r.Limit, cancel)
	defer activity.timer.Stop()
	return r.Dial(ctx, activity)
}

// Race dials with the runners in order of preference, and calls use with the first
// connection. If use fails with an error other than a [link.Deny], the next runner follows. If final
// is set, a refusal by a busy gateway ends the race unless another runner has started.
func Race(ctx context.Context, runners []Runner, final bool, use func(*Conn) error) error {
	attempts := make([]attempt, len(runners))
	activities := []*Activity{newActivity(), newActivity()}
	for i, r := range runners {
		attempts[i] = attempt{func(ctx context.Context) (*Conn, error) { return r.run(ctx, activities[i]) }, r.Delay}
	}
	_, err := stagger(ctx, attempts, activities[0].received, answeredDelay,
		func(conn *Conn, err error, running int) (bool, error) {
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

// try dials. A panic is its error.
func (a attempt) try(ctx context.Context) (conn *Conn, err error) {
	defer func() {
		if p := panics.Caught(recover()); p != nil {
			err = p
		}
	}()
	return a.dial(ctx)
}

// stagger starts each attempt after its delay, or as soon as another one has failed. After
// an answer, the next attempt waits for answeredDelay. judge gets each result and the
// number of running attempts, and reports whether to stop. Other connections are closed.
func stagger(
	ctx context.Context, attempts []attempt, answered <-chan struct{}, answeredDelay time.Duration,
	judge func(conn *Conn, err error, running int) (last bool, _ error),
) (*Conn, error) {
	type result struct {
		conn *Conn
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
		case <-answered:
			answered = nil
			next.Reset(answeredDelay)
		case r := <-results:
			last, err := judge(r.conn, r.err, started-len(errs)-1)
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

// Activity observes the packets of an attempt to connect, and cancels it if nothing comes
// back in time.
type Activity struct {
	limit time.Duration // from the first packet sent
	timer *time.Timer   // nil: no limit

	firstSent, firstReceived sync.Once
	received                 chan struct{} // closed at the first packet
}

func newActivity() *Activity { return &Activity{received: make(chan struct{})} }

// watch cancels the attempt if there is no answer within limit. The time counts from the
// first packet, if that is sent within limit.
func (a *Activity) watch(limit time.Duration, cancel context.CancelFunc) {
	a.limit = limit
	a.timer = time.AfterFunc(limit, func() {
		YieldToReaders()
		if !a.answered() {
			cancel()
		}
	})
}

// sending is called before something is sent.
func (a *Activity) sending() {
	a.firstSent.Do(func() {
		if a.timer != nil {
			a.timer.Reset(a.limit)
		}
	})
}

// receive is called after something was received.
func (a *Activity) receive() { a.firstReceived.Do(func() { close(a.received) }) }

// answered reports whether anything has come back.
func (a *Activity) answered() bool {
	select {
	case <-a.received:
		return true
	default:
		return false
	}
}

// YieldToReaders lets other goroutines run. On a busy machine, a packet that has arrived
// may wait for its reader.
func YieldToReaders() {
	const maxYields = 8
	for range maxYields {
		runtime.Gosched()
	}
}
