//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postern-dev/postern/tests/command"
	"github.com/postern-dev/postern/tests/rig"
)

// results are the figures of a run.
type results struct {
	Options  options
	Began    time.Time
	Took     time.Duration
	Rounds   map[point][]figures // one per round
	Idle     []idle
	Turns    string  // report of the process with the line
	Load     float64 // load average of the machine before
	Complete bool    // all parts were measured
}

// A point identifies the figures of a round.
type point struct {
	Part, System string
	N            int // number of clients or streams
}

// run measures everything. In case of an error, it returns the incomplete results.
func run(ctx context.Context, o options) (r *results, err error) {
	r = &results{Options: o, Began: time.Now(), Load: loadAverage(), Rounds: map[point][]figures{}}
	err = r.measure(ctx)
	r.Took, r.Complete = time.Since(r.Began), err == nil
	return r, err
}

// measure starts the systems, measures them, and ends them.
func (r *results) measure(ctx context.Context) (err error) {
	if r.Options.Root, err = rig.Root(); err != nil {
		return err
	}
	ctx, processes, end, err := newRigs(ctx, r.Options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end(false)) }()
	b, err := onLoopback(processes)
	if err != nil {
		return err
	}
	for _, measure := range []func(context.Context, *builder) error{
		r.compare, r.turns, r.idleTunnels,
	} {
		if err := measure(ctx, b); err != nil {
			return command.Explain(ctx, err)
		}
	}
	return nil
}

// compare measures the parts that all systems have.
func (r *results) compare(ctx context.Context, b *builder) error {
	o := r.Options
	if !slices.ContainsFunc(roundParts, o.measures) {
		return nil
	}
	systems, stop, err := b.buildAll(ctx, o.Systems)
	defer stop() // they would use CPU time during the next parts
	if err != nil {
		return err
	}
	for round := range o.Rounds {
		if err := r.round(ctx, systems, round); err != nil {
			return err
		}
	}
	return nil
}

// buildAll starts systems. It also returns a function that stops those that have started.
func (b *builder) buildAll(ctx context.Context, names []string) (systems []*system, stop func(), err error) {
	stop = func() {
		for _, s := range systems {
			s.stop()
		}
	}
	for _, name := range names {
		command.Progress("starting %s", name)
		s, err := b.build(ctx, name)
		if err != nil {
			return systems, stop, err
		}
		systems = append(systems, s)
	}
	return systems, stop, nil
}

// round measures the systems in turn, in an order that rotates.
func (r *results) round(ctx context.Context, systems []*system, round int) error {
	o := r.Options
	for _, part := range []struct {
		name    string
		numbers []int
		measure func(*system, int) (figures, error)
	}{
		{partStreams, o.Streams, func(s *system, n int) (figures, error) { return s.measureStreams(ctx, o, n) }},
		{partRequests, o.Clients, func(s *system, n int) (figures, error) {
			return s.measureRequests(ctx, o, n, s.Target.ask(smallAnswer, ""))
		}},
	} {
		if !o.measures(part.name) {
			continue
		}
		command.Progress("round %d of %d: %s", round+1, o.Rounds, part.name)
		for i, n := range part.numbers {
			for j := range systems {
				s := systems[(round+i+j)%len(systems)]
				f, err := part.measure(s, n)
				if err != nil {
					return fmt.Errorf("%s, %s of %d: %w", s.Name, part.name, n, err)
				}
				p := point{part.name, s.Name, n}
				r.Rounds[p] = append(r.Rounds[p], f)
			}
		}
	}
	return nil
}

// idleTunnels measures an idle Caddy, and gateways with many idle tunnels.
func (r *results) idleTunnels(ctx context.Context, b *builder) error {
	for _, name := range r.Options.Systems {
		for i, n := range r.Options.Tunnels {
			if !r.Options.measures(partIdle) || name == direct || name == plain && i > 0 {
				continue
			}
			if name == plain {
				n = 0 // plain Caddy is measured once
			}
			command.Progress("%d idle tunnels: %s", n, name)
			measured, err := b.measureIdle(ctx, r.Options, name, n)
			if err != nil {
				return fmt.Errorf("measuring %d idle tunnels of %s: %w", n, name, err)
			}
			r.Idle = append(r.Idle, measured)
		}
	}
	return nil
}

// turns measures conversations over a line with a delay.
func (r *results) turns(ctx context.Context, b *builder) (err error) {
	if r.Options.measures(partTurns) && (r.Options.has(postern) || r.Options.has(webSocket)) {
		r.Turns, err = b.turns(ctx, r.Options)
	}
	return err
}
