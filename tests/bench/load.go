//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/tests/command"
	"github.com/postern-dev/postern/tests/upstream/play"
)

// figures are what a number of clients got out of a system in one round, in
// requests or in events of streams.
type figures struct {
	Rate     float64            // a second
	P50, P99 float64            // of the time of a request, or the age of an event on arrival, in milliseconds
	CPU      map[string]float64 // of each process for each, in microseconds
}

// measureRequests lets n clients do a task, one time after the other each. Any
// wrong answer is an error: figures of a system that fails mean nothing.
func (s *system) measureRequests(ctx context.Context, o options, n int, what task) (figures, error) {
	clients, err := s.dialAll(n, o.Warmup+o.Load+o.AnswerLimit)
	if err != nil {
		return figures{}, err
	}
	defer closeAll(clients)
	if _, err := closedLoop(ctx, clients, o.Warmup, what); err != nil {
		return figures{}, fmt.Errorf("warming up: %w", err)
	}
	return s.measure(func() ([]float64, error) { return closedLoop(ctx, clients, o.Load, what) })
}

// measure makes figures of the times that load returns.
func (s *system) measure(load func() ([]float64, error)) (f figures, err error) {
	before, err := s.cpu()
	if err != nil {
		return f, err
	}
	began := time.Now()
	times, err := load()
	took := time.Since(began)
	if err != nil {
		return f, err
	}
	if f.CPU, err = s.cpu(); err != nil {
		return f, err
	}
	for name := range f.CPU {
		f.CPU[name] = (f.CPU[name] - before[name]) / float64(len(times))
	}
	f.Rate = float64(len(times)) / took.Seconds()
	times = slices.DeleteFunc(times, func(t float64) bool { return t == uncounted })
	slices.Sort(times)
	f.P50, f.P99 = command.Percentile(times, 0.50), command.Percentile(times, 0.99)
	return f, nil
}

// uncounted stands for the age of an event at the start of a stream, of which
// there are warmEvents.
const (
	uncounted  = -1
	warmEvents = 10
)

// closedLoop lets the clients do a task for some time. It returns how long each
// took, in milliseconds.
func closedLoop(ctx context.Context, clients []*client, d time.Duration, what task) ([]float64, error) {
	deadline := time.Now().Add(d)
	taken := make([][]float64, len(clients))
	err := parallel(clients, func(i int, c *client) error {
		for began := time.Now(); began.Before(deadline) && ctx.Err() == nil; {
			if err := c.do(what); err != nil {
				return err
			}
			now := time.Now()
			taken[i] = append(taken[i], milliseconds(now.Sub(began)))
			began = now
		}
		return context.Cause(ctx)
	})
	return slices.Concat(taken...), err
}

// measureStreams reads n streams at a time.
func (s *system) measureStreams(ctx context.Context, o options, n int) (figures, error) {
	clients, err := s.dialAll(n, o.Stream+o.AnswerLimit)
	if err != nil {
		return figures{}, err
	}
	defer closeAll(clients)
	tokens := int(o.Stream / o.Pace)
	what := s.Target.streamed(play.Script{Tokens: tokens, Pace: o.Pace, Stamp: true}, 0)
	// Real streams tick independently of each other. The seed makes their phases
	// the same for every system.
	phases, random := make([]time.Duration, n), rand.New(rand.NewPCG(1, uint64(n)))
	for i := range phases {
		phases[i] = time.Duration(random.Int64N(int64(o.Pace)))
	}
	ages := make([][]float64, n)
	return s.measure(func() ([]float64, error) {
		err := parallel(clients, func(i int, c *client) (err error) {
			if err := command.Pause(ctx, phases[i]); err != nil {
				return err
			}
			if ages[i], err = c.stamps(what.request, tokens); err != nil {
				return err
			}
			for j := range min(warmEvents, tokens) {
				ages[i][j] = uncounted
			}
			return nil
		})
		return slices.Concat(ages...), errors.Join(err, context.Cause(ctx))
	})
}

// dialAll connects n clients.
func (s *system) dialAll(n int, limit time.Duration) (clients []*client, err error) {
	for range n {
		c, err := s.Target.dial(limit)
		if err != nil {
			closeAll(clients)
			return nil, fmt.Errorf("connecting to %s: %w", s.Name, err)
		}
		clients = append(clients, c)
	}
	return clients, nil
}

func closeAll(clients []*client) {
	for _, c := range clients {
		c.Close()
	}
}

// parallel runs do for all items at a time, and returns the first error in their
// order.
func parallel[T any](items []T, do func(i int, item T) error) error {
	errs := make([]error, len(items))
	var running sync.WaitGroup
	for i, item := range items {
		running.Go(func() { errs[i] = do(i, item) })
	}
	running.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// answers counts streamed answers that were compared byte for byte.
type answers struct {
	Total   int
	Wrong   int // cut short, different, or none
	Rate    float64
	Example string // the first that was wrong
}

const (
	answerClients = 64
	answersLimit  = 5 * time.Minute // of all answers on one connection
)

// measureAnswers reads streamed answers, several at a time.
func (s *system) measureAnswers(ctx context.Context, o options) (result answers, err error) {
	began := time.Now()
	var next atomic.Int64
	var mu sync.Mutex
	err = parallel(make([]*client, answerClients), func(_ int, c *client) (err error) {
		for ctx.Err() == nil {
			i := int(next.Add(1)) - 1
			if i >= o.Answers {
				break
			}
			if c == nil {
				if c, err = s.Target.dial(answersLimit); err != nil {
					return fmt.Errorf("connecting to %s: %w", s.Name, err)
				}
			}
			if err := c.do(s.Target.streamed(answerScript(i))); err != nil {
				c.Close() // it is in an unknown state
				c = nil
				mu.Lock()
				if result.Wrong++; result.Wrong == 1 {
					result.Example = fmt.Sprintf("answer %d: %v", i, err)
				}
				mu.Unlock()
			}
		}
		if c != nil {
			c.Close()
		}
		return context.Cause(ctx)
	})
	result.Total, result.Rate = o.Answers, float64(o.Answers)/time.Since(began).Seconds()
	return result, err
}

// answerScript is what the i-th answer is: of 4 to 35 events, half of them
// without a pause between events, the others with very short ones; every third
// with writes that end anywhere. One prompt in eight is long.
func answerScript(i int) (s play.Script, padding int) {
	s = play.Script{ID: int64(i), Tokens: 4 + i%32, Ragged: i%3 == 0}
	if i%2 == 0 {
		s.Pace = time.Duration(i%7) * 100 * time.Microsecond
	}
	if i%8 == 3 {
		padding = 64 << 10
	}
	return s, padding
}
