//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/tests/command"
	"github.com/postern-dev/postern/tests/rig"
)

// results are everything that a run has measured.
type results struct {
	Options  options
	Began    time.Time
	Took     time.Duration
	Rounds   map[point][]figures // one for each round
	Answers  map[string]answers  // by system
	Allocs   map[string]map[string]allocations
	Memory   []memory
	Idle     []idle
	Legs     []legs
	Loss     string  // the report of the process that measures it
	Foreign  float64 // CPU that others used meanwhile, in percent of the machine
	Stolen   float64 // CPU that the hypervisor withheld, in percent of the machine
	Complete bool    // nothing is missing

	texts *prompts
}

// A point is what one figure of a round stands for.
type point struct {
	Part, System string
	N            int // clients or streams at a time, or KB of a body
}

// run measures everything. With an error it returns what there is so far.
func run(ctx context.Context, o options) (r *results, err error) {
	r = &results{
		Options: o, Began: time.Now(),
		Rounds: map[point][]figures{}, Answers: map[string]answers{}, Allocs: map[string]map[string]allocations{},
	}
	noise, err := noise()
	if err != nil {
		return nil, err
	}
	if err := r.measure(ctx); err != nil {
		return r, err
	}
	r.Took = time.Since(r.Began)
	r.Foreign, r.Stolen, err = noise()
	r.Complete = err == nil
	return r, err
}

// measure starts what is measured, measures it, and ends it.
func (r *results) measure(ctx context.Context) (err error) {
	if r.Options.Root, err = rig.Root(); err != nil {
		return err
	}
	if r.texts, err = newPrompts(r.Options.Root); err != nil {
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
		r.compare, r.lossyLine, r.memory, r.idleTunnels, r.killedEdges, r.allocations,
	} {
		if err := measure(ctx, b); err != nil {
			return command.Explain(ctx, err)
		}
	}
	return nil
}

// compare measures what all systems can do.
func (r *results) compare(ctx context.Context, b *builder) error {
	o := r.Options
	if !o.measures(partAnswers) && !slices.ContainsFunc(roundParts, o.measures) {
		return nil
	}
	systems, stop, err := b.buildAll(ctx, o.Systems)
	defer stop() // they would take a little of the processor from what comes later
	if err != nil {
		return err
	}
	for round := range o.Rounds {
		if err := r.round(ctx, systems, round); err != nil {
			return err
		}
	}
	// Direct and plain Caddy show that what goes wrong is not the check's fault.
	for _, s := range systems {
		if !o.measures(partAnswers) {
			break
		}
		command.Progress("%d streamed answers: %s", o.Answers, s.Name)
		var err error
		if r.Answers[s.Name], err = s.measureAnswers(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// buildAll builds systems, and returns what stops those that it has built.
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

// allocations counts them, in systems of its own.
func (r *results) allocations(ctx context.Context, b *builder) error {
	b.profiled = true
	for _, name := range r.Options.Systems {
		if name == direct || !r.Options.measures(partAllocations) {
			continue
		}
		command.Progress("allocations: %s", name)
		s, err := b.build(ctx, name)
		if err != nil {
			return err
		}
		r.Allocs[name], err = s.measureAllocations(ctx, r.Options)
		s.stop()
		if err != nil {
			return fmt.Errorf("counting allocations of %s: %w", name, err)
		}
	}
	return nil
}

// round lets the systems take turns, in an order that rotates.
func (r *results) round(ctx context.Context, systems []*system, round int) error {
	o := r.Options
	for _, part := range []struct {
		name    string
		numbers []int
		measure func(*system, int) (figures, error)
	}{
		{partStreams, o.Streams, func(s *system, n int) (figures, error) { return s.measureStreams(ctx, o, n) }},
		{partUploads, o.Uploads, func(s *system, kb int) (figures, error) {
			return s.measureUploads(ctx, o, kb, r.texts.new)
		}},
		{partImages, o.Uploads, func(s *system, kb int) (figures, error) {
			return s.measureUploads(ctx, o, kb, r.texts.image)
		}},
		{partRequests, o.Clients, func(s *system, n int) (figures, error) {
			return s.measureRequests(ctx, o, n, s.Target.whole(smallAnswer, 0))
		}},
		{partFast, []int{fastStreams}, func(s *system, n int) (figures, error) { return s.measureFast(ctx, o, n) }},
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
				at := point{part.name, s.Name, n}
				r.Rounds[at] = append(r.Rounds[at], f)
			}
		}
	}
	return nil
}

// idleTunnels measures a Caddy at rest, and gateways with many tunnels.
func (r *results) idleTunnels(ctx context.Context, b *builder) error {
	for _, name := range r.Options.Systems {
		for i, n := range r.Options.Tunnels {
			if !r.Options.measures(partIdle) || name == direct || name == plain && i > 0 {
				continue
			}
			if name == plain {
				n = 0 // once
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

// lossyLine measures tunnels over a line that loses packets.
func (r *results) lossyLine(ctx context.Context, b *builder) (err error) {
	if (r.Options.measures(partLoss) || r.Options.measures(partTurns)) &&
		(r.Options.has(postern) || r.Options.has(webSocket)) {
		r.Loss, err = b.lossyLine(ctx, r.Options)
	}
	return err
}

// failure returns an error if an answer was wrong. How fast they are depends on
// the machine.
func (r *results) failure() error {
	var wrong []string
	for name, a := range r.Answers {
		if a.Wrong > 0 {
			wrong = append(wrong, fmt.Sprintf("%s: %d of %d streamed answers were wrong, the first: %s", name, a.Wrong, a.Total,
				a.Example))
		}
	}
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "\n"))
	}
	return nil
}
