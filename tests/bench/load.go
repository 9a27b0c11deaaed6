package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/tests/command"
	"github.com/postern-dev/postern/tests/upstream/play"
)

// A load is what one number of clients got out of a system in one round.
type load struct {
	Rate     float64            // requests per second
	P50, P99 float64            // of the time of a request, in milliseconds
	CPU      map[string]float64 // of each process per request, in microseconds
}

// oneRequest sends a request and compares the answer.
func oneRequest(c *client, request, want []byte) error {
	got, err := c.exchange(request)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("the answer differs: got %.200q, want %.200q", got, want)
	}
	return nil
}

// measureLoad lets n clients send requests, one after the other each. Any wrong
// answer is an error: figures of a system that fails mean nothing.
func (s *system) measureLoad(ctx context.Context, o options, n int) (load, error) {
	return s.measureTask(ctx, o, n, smallTask())
}

// measureTask is measureLoad with any request.
func (s *system) measureTask(ctx context.Context, o options, n int, what task) (load, error) {
	clients, err := s.dialAll(n, o.Warmup+o.Load+o.AnswerLimit)
	if err != nil {
		return load{}, err
	}
	defer closeAll(clients)
	if _, err := s.closedLoop(ctx, clients, o.Warmup, what); err != nil {
		return load{}, fmt.Errorf("warming up: %w", err)
	}
	before, err := s.cpu()
	if err != nil {
		return load{}, err
	}
	began := time.Now()
	latencies, err := s.closedLoop(ctx, clients, o.Load, what)
	took := time.Since(began)
	if err != nil {
		return load{}, err
	}
	l := load{
		Rate: float64(len(latencies)) / took.Seconds(),
		P50:  percentile(latencies, 0.50),
		P99:  percentile(latencies, 0.99),
	}
	l.CPU, err = s.spent(before, len(latencies))
	return l, err
}

// closedLoop lets the clients send requests for some time. It returns how long
// each took, in milliseconds and sorted.
func (s *system) closedLoop(ctx context.Context, clients []*client, d time.Duration, what task) ([]float64, error) {
	request := s.Target.request(what.request)
	deadline := time.Now().Add(d)
	taken := make([][]float64, len(clients))
	err := parallel(clients, func(i int, c *client) error {
		for began := time.Now(); began.Before(deadline) && ctx.Err() == nil; {
			if err := oneRequest(c, request, what.want); err != nil {
				return err
			}
			now := time.Now()
			taken[i] = append(taken[i], milliseconds(now.Sub(began)))
			began = now
		}
		return context.Cause(ctx)
	})
	all := slices.Concat(taken...)
	slices.Sort(all)
	return all, err
}

// milliseconds returns d as a number.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// dialAll makes n clients.
func (s *system) dialAll(n int, limit time.Duration) ([]*client, error) {
	var clients []*client
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

// A stream is what a number of streams showed in one round.
type stream struct {
	P50, P99 float64            // from an event's sending to its arrival, in milliseconds
	CPU      map[string]float64 // of each process per event, in microseconds
	Events   int                // that were measured
}

// warmEvents is how many events at the start of a stream are not counted.
const warmEvents = 10

// measureStreams reads n streams at a time.
func (s *system) measureStreams(ctx context.Context, o options, n int) (stream, error) {
	clients, err := s.dialAll(n, o.Stream+o.AnswerLimit)
	if err != nil {
		return stream{}, err
	}
	defer closeAll(clients)
	tokens := int(o.Stream / o.Pace)
	request := s.Target.request(requestBody(play.Script{Tokens: tokens, Pace: o.Pace, Stamp: true}, true, 0))
	// Real streams tick independently of each other. The seed makes their
	// phases the same for every system.
	phases := make([]time.Duration, n)
	for i, random := 0, rand.New(rand.NewPCG(1, uint64(n))); i < n; i++ {
		phases[i] = time.Duration(random.Int64N(int64(o.Pace)))
	}
	before, err := s.cpu()
	if err != nil {
		return stream{}, err
	}
	delays := make([][]float64, n)
	err = parallel(clients, func(i int, c *client) error {
		if err := command.Pause(ctx, phases[i]); err != nil {
			return err
		}
		var err error
		delays[i], err = readStamps(c, request, tokens)
		return err
	})
	if err != nil {
		return stream{}, err
	}
	var result stream
	if result.CPU, err = s.spent(before, n*tokens); err != nil {
		return stream{}, err
	}
	for i, d := range delays {
		delays[i] = d[min(warmEvents, len(d)):]
	}
	all := slices.Concat(delays...)
	slices.Sort(all)
	result.P50, result.P99, result.Events = percentile(all, 0.50), percentile(all, 0.99), len(all)
	return result, context.Cause(ctx)
}

// readStamps reads a stream and returns how old each event was on arrival, in
// milliseconds. A stream without all of its events is an error.
func readStamps(c *client, request []byte, tokens int) ([]float64, error) {
	delays := make([]float64, 0, tokens)
	ended := false
	err := c.lines(request, func(line []byte, at int64) {
		if sent, ok := play.StampOf(line); ok {
			delays = append(delays, milliseconds(time.Duration(at-sent)))
		} else if bytes.HasPrefix(line, []byte("data: [DONE]")) {
			ended = true
		}
	})
	if err == nil && (!ended || len(delays) != tokens) {
		err = fmt.Errorf("%w: %d of %d events, end marker: %t", errCut, len(delays), tokens, ended)
	}
	return delays, err
}
