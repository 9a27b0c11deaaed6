package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/postern-dev/postern/tests/command"
	"github.com/postern-dev/postern/tests/rig"
)

// soak runs everything. With an error it returns what there is so far.
func soak(ctx context.Context, o options) (r *report, err error) {
	command.Progress("seed %d: %d connectors, %g requests/s, for %v", o.Seed, o.Connectors, o.Rate, o.Length)
	ctx, s, err := newSystem(ctx, o)
	if err != nil {
		return nil, err
	}
	r = &report{o: o, tally: s.tally, log: s.log, history: &history{began: time.Now()}}
	defer func() { err = errors.Join(err, s.close(err != nil || r.failure() != nil)) }()
	if err := s.start(ctx); err != nil {
		return nil, command.Explain(ctx, err)
	}
	h := r.history
	if h.before, h.heapBefore, err = s.atRest(ctx, "before"); err != nil {
		return nil, command.Explain(ctx, err)
	}
	command.Progress("at rest: %s", h.before)
	h.began = time.Now()
	h.steady = h.began.Add(o.Length * 11 / 20)
	if err := s.stress(ctx, h); err != nil {
		return r, command.Explain(ctx, err)
	}
	command.Progress("waiting for rest")
	if err := s.rest(ctx, restLimit); err != nil {
		return r, command.Explain(ctx, err)
	}
	if h.after, h.heapAfter, err = s.atRest(ctx, "after"); err != nil {
		return r, command.Explain(ctx, err)
	}
	command.Progress("at rest: %s", h.after)
	r.complete = true
	return r, nil
}

// stress sends requests and makes faults for the length of the run, and returns
// when the last request has ended.
func (s *system) stress(ctx context.Context, h *history) error {
	release := make(chan struct{})
	s.clients = newClients(s.gateway.URL, release)
	lanes, err := s.availableLanes(ctx)
	if err != nil {
		return err
	}
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	sending, stopSending := context.WithTimeout(ctx, s.o.Length)
	defer stopSending()
	l := &load{s: s}
	var watcher, workers sync.WaitGroup
	watcher.Go(func() { s.watch(watching, h) })
	watcher.Go(func() { s.pulse(watching) })
	workers.Go(func() { l.run(sending, ctx) })
	for i, lane := range lanes {
		workers.Go(func() {
			if err := s.run(ctx, lane, s.o.random(uint64('f'+i))); err != nil {
				s.fail(err)
			}
		})
	}
	workers.Wait()
	h.ended = time.Now()
	stopWatching()
	watcher.Wait()
	command.Progress("waiting for the last %d requests", l.running.Load())
	close(release)
	l.sending.Wait()
	for _, c := range []*http.Client{s.clients.kept, s.clients.fresh, s.clients.slow} {
		c.CloseIdleConnections()
	}
	command.Progress("%s", s.tally.line())
	return context.Cause(ctx)
}

// availableLanes are the lanes with what this build of the gateway can do.
func (s *system) availableLanes(ctx context.Context) ([]lane, error) {
	var status *rig.StatusError
	err := s.gateway.Admin.Manage(ctx, http.MethodGet, "/connectors/"+s.connectors[0].ID+"/rotate", nil, nil)
	if err == nil || !errors.As(err, &status) {
		return nil, fmt.Errorf("asking whether tokens can be rotated: %w", err)
	}
	return s.lanes(status.Status == http.StatusMethodNotAllowed), nil
}
