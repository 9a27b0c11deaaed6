package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postern-dev/postern/tests/command"
)

// results are everything that a run has measured.
type results struct {
	Options  options
	Began    time.Time
	Took     time.Duration
	Loads    map[point][]load   // one for each round
	Streams  map[point][]stream // one for each round
	Answers  map[string]answers // by system
	Allocs   map[string]map[string]allocations
	Caddy    *footprint // plain Caddy before its first request
	Idle     []idle
	Loss     *lossy  // nil: not measured
	Foreign  float64 // CPU that others used meanwhile, in percent of the machine
	Stolen   float64 // CPU that the hypervisor withheld, in percent of the machine
	Complete bool    // nothing is missing
}

// A point is what one figure of a round stands for.
type point struct {
	System string
	N      int // clients or streams
}

// run measures everything. With an error it returns what there is so far.
func run(ctx context.Context, o options) (r *results, err error) {
	r = &results{
		Options: o, Began: time.Now(),
		Loads: map[point][]load{}, Streams: map[point][]stream{},
		Answers: map[string]answers{}, Allocs: map[string]map[string]allocations{},
	}
	ctx, processes, end, err := newRig(ctx, o.Bin)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()
	noise, err := startNoise()
	if err != nil {
		return nil, err
	}
	b, err := newBuilder(processes, loopback())
	if err != nil {
		return nil, err
	}
	for _, measure := range []func() error{
		func() error { return r.compare(ctx, b) },
		func() error { return r.idleTunnels(ctx, b) },
		func() error { return r.lossyLine(ctx, b) },
	} {
		if err := measure(); err != nil {
			return r, command.Explain(ctx, err)
		}
	}
	r.Took = time.Since(r.Began)
	r.Foreign, r.Stolen, err = noise.shares(processes)
	r.Complete = err == nil
	return r, err
}

// compare measures what all systems can do.
func (r *results) compare(ctx context.Context, b *builder) error {
	o := r.Options
	if !slices.ContainsFunc([]string{partRequests, partStreams, partAnswers, partAllocations}, o.measures) {
		return nil
	}
	var systems []*system
	for _, name := range o.Systems {
		command.Progress("starting %s", name)
		s, err := b.build(ctx, name)
		if err != nil {
			return err
		}
		systems = append(systems, s)
	}
	// They would take a little of the processor from what comes later.
	defer func() {
		for _, s := range systems {
			s.stop()
		}
	}()
	if err := r.rounds(ctx, systems); err != nil {
		return err
	}
	if err := r.compareAnswers(ctx, systems); err != nil {
		return err
	}
	return r.account(ctx, b, systems)
}

// rounds lets the systems take turns.
func (r *results) rounds(ctx context.Context, systems []*system) error {
	o := r.Options
	for round := range o.Rounds {
		if o.measures(partRequests) {
			command.Progress("round %d of %d: requests", round+1, o.Rounds)
			if err := r.roundOfLoads(ctx, systems, round); err != nil {
				return err
			}
		}
		if o.measures(partStreams) {
			command.Progress("round %d of %d: streams", round+1, o.Rounds)
			if err := r.roundOfStreams(ctx, systems, round); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *results) roundOfLoads(ctx context.Context, systems []*system, round int) error {
	for i, n := range r.Options.Clients {
		for _, s := range rotate(systems, round+i) {
			l, err := s.measureLoad(ctx, r.Options, n)
			if err != nil {
				return fmt.Errorf("%s with %d clients: %w", s.Name, n, err)
			}
			at := point{s.Name, n}
			r.Loads[at] = append(r.Loads[at], l)
		}
	}
	return nil
}

func (r *results) roundOfStreams(ctx context.Context, systems []*system, round int) error {
	for i, n := range r.Options.Streams {
		for _, s := range rotate(systems, round+i) {
			st, err := s.measureStreams(ctx, r.Options, n)
			if err != nil {
				return fmt.Errorf("%s with %d streams: %w", s.Name, n, err)
			}
			at := point{s.Name, n}
			r.Streams[at] = append(r.Streams[at], st)
		}
	}
	return nil
}

// rotate returns the systems in another order for each n.
func rotate(systems []*system, n int) []*system {
	n %= len(systems)
	return slices.Concat(systems[n:], systems[:n])
}

// compareAnswers checks streamed answers; direct and plain Caddy show that what
// goes wrong is not the check's fault.
func (r *results) compareAnswers(ctx context.Context, systems []*system) error {
	if r.Options.Answers == 0 || !r.Options.measures(partAnswers) {
		return nil
	}
	for _, s := range systems {
		command.Progress("%d streamed answers: %s", r.Options.Answers, s.Name)
		a, err := s.measureAnswers(ctx, r.Options)
		if err != nil {
			return err
		}
		r.Answers[s.Name] = a
	}
	return nil
}

// account counts allocations, and takes profiles if they are wanted.
func (r *results) account(ctx context.Context, b *builder, systems []*system) error {
	for _, s := range systems {
		if s.Name == direct || !r.Options.measures(partAllocations) {
			continue
		}
		command.Progress("allocations: %s", s.Name)
		a, err := b.measureAllocations(ctx, r.Options, s)
		if err != nil {
			return fmt.Errorf("counting allocations of %s: %w", s.Name, err)
		}
		r.Allocs[s.Name] = a
	}
	return nil
}

// idleTunnels measures a Caddy at rest, and a gateway with many tunnels.
func (r *results) idleTunnels(ctx context.Context, b *builder) error {
	if !r.Options.measures(partIdle) {
		return nil
	}
	if r.Options.has(plain) {
		s := b.system(plain)
		if err := b.startPlain(ctx, s); err != nil {
			return err
		}
		f, err := s.footprintOf(ctx, 0)
		s.stop()
		if err != nil {
			return err
		}
		r.Caddy = &f
	}
	for _, n := range r.Options.Tunnels {
		for _, name := range r.Options.tunnels() {
			command.Progress("%d idle tunnels: %s", n, name)
			i, err := b.measureIdle(ctx, r.Options, name, n)
			if err != nil {
				return fmt.Errorf("measuring %d idle tunnels of %s: %w", n, name, err)
			}
			r.Idle = append(r.Idle, i)
		}
	}
	return nil
}
