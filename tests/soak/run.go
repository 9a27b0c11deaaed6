package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/postern-dev/postern/tests/command"
	"github.com/postern-dev/postern/tests/rig"
	"github.com/postern-dev/postern/tests/upstream/play"
)

// soak runs everything. With an error it returns what there is so far.
func soak(ctx context.Context, o options) (r *report, err error) {
	command.Progress("seed %d: %d connectors, %g requests/s, for %v", o.Seed, o.Connectors, o.Rate, o.Length)
	ctx, s, err := newSystem(ctx, o)
	if err != nil {
		return nil, err
	}
	r = &report{o: o, tally: s.tally, log: s.log}
	defer func() { err = errors.Join(err, s.end(err != nil || o.Keep != "" || r.failure() != nil)) }()
	for _, step := range []func(context.Context, *report) error{
		func(ctx context.Context, _ *report) error { return s.start(ctx) },
		s.warm,
		func(ctx context.Context, r *report) (err error) { r.before, err = s.atRest(ctx, "before"); return err },
		s.stress,
		s.rest,
		func(ctx context.Context, r *report) (err error) { r.after, err = s.atRest(ctx, "after"); return err },
	} {
		if err := step(ctx, r); err != nil {
			return r, command.Explain(ctx, err)
		}
	}
	r.complete = true
	return r, nil
}

// warm sends a small request in each dialect for each deployment over each edge. What
// that leaves behind is made once, however many requests follow: metrics above all.
func (s *system) warm(ctx context.Context, _ *report) error {
	command.Progress("sending the first requests")
	var edges sync.WaitGroup
	for _, e := range s.edges {
		edges.Go(func() {
			for _, d := range s.deployments {
				for _, dialect := range dialects {
					s.request(ctx, &request{
						Script: play.Script{ID: s.lastID.Add(1), Tokens: 4}, dialect: dialect, streamed: true,
						model: d, key: s.keys.keys[0], edge: e, habit: reads,
					})
				}
			}
		})
	}
	edges.Wait()
	s.clients.closeIdle()
	return context.Cause(ctx)
}

// stress sends requests and makes faults for the length of the run, and returns
// when the last request has ended.
func (s *system) stress(ctx context.Context, r *report) error {
	r.began = time.Now()
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	sending, stopSending := context.WithTimeout(ctx, s.o.Length)
	defer stopSending()
	var watcher, workers, requests sync.WaitGroup
	watcher.Go(func() { s.watch(watching, r) })
	watcher.Go(func() { s.pulse(watching) })
	workers.Go(func() { s.send(sending, ctx, &requests) })
	for i := range s.o.lanes() {
		workers.Go(func() {
			if err := s.runLane(ctx, i, s.o.random(uint64('f'+i))); err != nil {
				s.fail(err)
			}
		})
	}
	workers.Wait()
	stopWatching()
	watcher.Wait()
	command.Progress("waiting for the last requests")
	close(s.clients.release)
	requests.Wait()
	s.clients.closeIdle()
	command.Progress("%s", s.tally.line())
	return context.Cause(ctx)
}

// send sends requests until ctx ends, at random times, whether or not others have
// been answered, up to a number that the machine can bear. Those under way go on in
// their own context.
func (s *system) send(ctx, running context.Context, requests *sync.WaitGroup) {
	random := s.o.random('l')
	places := make(chan struct{}, 50+int(20*s.o.Rate)) // more than what is normal for the rate
	for next := time.Now(); ; {
		next = next.Add(time.Duration(random.ExpFloat64() / s.o.Rate * float64(time.Second)))
		if late := time.Since(next); late > time.Second { // a machine that was held up does not catch up
			next = next.Add(late)
		}
		if command.Pause(ctx, time.Until(next)) != nil {
			return
		}
		r := compose(random, s.lastID.Add(1))
		r.model, r.key, r.edge = one(random, one(random, s.groups)), s.keys.any(random), one(random, s.edges)
		select {
		case places <- struct{}{}:
		default:
			s.tally.start(r, false)
			continue
		}
		requests.Go(func() {
			defer func() { <-places }()
			s.request(running, r)
		})
	}
}

// request sends a request, and counts what became of it.
func (s *system) request(ctx context.Context, r *request) {
	s.tally.start(r, true)
	o := s.clients.send(ctx, r)
	if ctx.Err() != nil {
		return // the run was broken off, not the request
	}
	o.homes = r.model.during(o.began, o.ended)
	s.tally.end(&o)
}

// runLane runs a lane until its time is over or ctx ends.
func (s *system) runLane(ctx context.Context, i int, random *rand.Rand) error {
	l, length := s.o.lanes()[i], s.o.Length
	if i == 0 {
		length = length * 2 / 5
	}
	end, rest := time.Now().Add(length), min(l.rest, s.o.Length/l.share)
	for {
		for _, k := range random.Perm(len(l.kinds)) {
			// Half of the mean at least, so that there is a time without.
			if err := command.Pause(ctx, rest/2+time.Duration(random.Float64()*float64(rest))); err != nil ||
				time.Now().After(end) {
				return nil
			}
			if err := s.makeFault(ctx, l, l.kinds[k], random); err != nil && ctx.Err() == nil {
				return fmt.Errorf("making a fault of the %s: %w", l.name, err)
			}
		}
	}
}

// makeFault makes one fault, and returns when all is well again.
func (s *system) makeFault(ctx context.Context, l lane, kind *faultKind, random *rand.Rand) error {
	if l.manages {
		s.up.RLock()
		defer s.up.RUnlock()
	}
	var f *fault
	err := kind.make(ctx, s, random, func(at *edge, connectors []int, format string, args ...any) {
		f = s.log.begin(kind, time.Now(), at, connectors, fmt.Sprintf(format, args...))
	})
	if err != nil || f == nil {
		return err
	}
	if kind.mends {
		err = s.mend(ctx, f)
	}
	s.log.end(f)
	return err
}

// settle is how long all must be well before a fault is over: what was frozen
// may seem well for a moment.
const settle = 3 * time.Second

// mend waits until the fault's connectors are online and stay so. That they do not
// come back is a finding.
func (s *system) mend(ctx context.Context, f *fault) error {
	for {
		err := rig.Poll(ctx, recoveryLimit, poll, "recovery",
			func(ctx context.Context) error { return s.recovered(ctx, f.connectors) })
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			s.tally.find("not well again after %s: %v", f, err)
			return nil
		}
		if err := command.Pause(ctx, settle); err != nil {
			return err
		}
		if s.recovered(ctx, f.connectors) == nil {
			return nil
		}
	}
}

const (
	pulseEvery = 500 * time.Millisecond
	// pulseLate is when a small request is late enough for tunnels to be given
	// up soon: a connector waits 3 s for a pong.
	pulseLate = 1500 * time.Millisecond
	// pulseLimit is when it is a finding on a machine that has time.
	pulseLimit = 10 * time.Second
	// crowded is the share of the time, in percent, in which some process waited
	// for a processor, from which on a machine has no time for all of them. The
	// soak alone makes less than half of it.
	crowded = 95
)

// pulse sends small requests to the gateway until ctx ends. When one is late
// because the machine has too much else to do, tunnels may be lost, and that is
// noted as a fault; that the gateway does not answer otherwise is a finding.
func (s *system) pulse(ctx context.Context) {
	public := rig.Admin(strings.TrimPrefix(s.edges[0].URL, "http://"))
	for command.Pause(ctx, pulseEvery) == nil {
		sent, answered := time.Now(), make(chan struct{})
		go func() {
			defer close(answered) // or refused, as while it is restarted
			_, _ = public.Call(ctx, http.MethodGet, "/.well-known/postern", nil)
		}()
		select {
		case <-answered:
			continue
		case <-time.After(pulseLate):
		}
		pressure, _ := os.ReadFile("/proc/pressure/cpu") // empty where the kernel does not report it
		if busy := parsePressure(string(pressure)); busy >= crowded {
			f := s.log.begin(machineOverloaded, sent, nil, nil, fmt.Sprintf("some process waited %.0f %% of the time", busy))
			<-answered
			_ = s.mend(ctx, f) // its error is the end of ctx
			s.log.end(f)
			continue
		}
		select {
		case <-answered:
		case <-time.After(pulseLimit):
			s.tally.find("the gateway does not answer a small request for %v, on a machine that has time", pulseLimit)
			<-answered
		}
	}
}

// parsePressure reads "some avg10=1.23 avg60=…", which is the share of the last ten
// seconds in which some process waited for a processor, in percent.
func parsePressure(text string) (percent float64) {
	_, _ = fmt.Sscanf(text, "some avg10=%f", &percent) // or it stays 0
	return percent
}
