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

// soak runs everything. In case of an error, it returns the incomplete report.
func soak(ctx context.Context, o options) (r *report, err error) {
	command.Progress("seed %d: %d connectors, %g requests/s, for %v", o.Seed, o.Connectors, o.Rate, o.Length)
	ctx, s, err := newSystem(ctx, o)
	if err != nil {
		return nil, err
	}
	r = &report{o: o, tally: s.tally, log: s.log}
	defer func() { err = errors.Join(err, s.end(err != nil || r.failure() != nil)) }()
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

// warm sends a small request in each dialect to each deployment. So structures that are created once, above all
// metrics, exist before the first sample.
func (s *system) warm(ctx context.Context, _ *report) error {
	command.Progress("sending the first requests")
	for _, d := range s.deployments {
		for _, dialect := range dialects {
			s.request(ctx, &request{
				Script: play.Script{ID: s.lastID.Add(1), Tokens: 4}, dialect: dialect, streamed: true,
				model: d, key: s.keys.keys[0], gateway: s.gateway, habit: reads,
			})
		}
	}
	s.clients.closeIdle()
	return context.Cause(ctx)
}

// stress sends requests and causes faults for the length of the run. It returns when the last request has
// ended.
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
	for i := range lanes {
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

// send sends requests at random times until ctx ends, whether or not others have been answered. If too many
// are running, it leaves requests out. Running requests continue in their own context.
func (s *system) send(ctx, running context.Context, requests *sync.WaitGroup) {
	random := s.o.random('l')
	slots := make(chan struct{}, 50+int(20*s.o.Rate)) // above the normal number for the rate
	for next := time.Now(); ; {
		next = next.Add(time.Duration(random.ExpFloat64() / s.o.Rate * float64(time.Second)))
		if late := time.Since(next); late > time.Second { // do not catch up after a stall
			next = next.Add(late)
		}
		if command.Pause(ctx, time.Until(next)) != nil {
			return
		}
		r := compose(random, s.lastID.Add(1))
		r.model, r.key, r.gateway = pick(random, pick(random, s.groups)), s.keys.any(random), s.gateway
		select {
		case slots <- struct{}{}:
		default:
			s.tally.start(r, false)
			continue
		}
		requests.Go(func() {
			defer func() { <-slots }()
			s.request(running, r)
		})
	}
}

// request sends a request and counts its result.
func (s *system) request(ctx context.Context, r *request) {
	s.tally.start(r, true)
	o := s.clients.send(ctx, r)
	if ctx.Err() != nil {
		return // the run was canceled
	}
	o.routes = r.model.routesDuring(o.began, o.ended)
	s.tally.end(&o)
}

// runLane runs a lane until its time is over or ctx ends.
func (s *system) runLane(ctx context.Context, i int, random *rand.Rand) error {
	l, length := lanes[i], s.o.Length
	if i == 0 {
		length = length * 2 / 5
	}
	end, rest := time.Now().Add(length), min(l.rest, s.o.Length/l.share)
	for {
		for _, k := range random.Perm(len(l.kinds)) {
			// The pause is at least half of the mean, so that there is some time without the fault.
			if err := command.Pause(ctx, rest/2+time.Duration(random.Float64()*float64(rest))); err != nil ||
				time.Now().After(end) {
				return nil
			}
			if err := s.makeFault(ctx, l, l.kinds[k], random); err != nil && ctx.Err() == nil {
				return fmt.Errorf("causing a fault of lane %s: %w", l.name, err)
			}
		}
	}
}

// makeFault causes one fault and waits until the system has recovered.
func (s *system) makeFault(ctx context.Context, l lane, kind *faultKind, random *rand.Rand) error {
	if l.manages {
		s.up.RLock()
		defer s.up.RUnlock()
	}
	var f *fault
	err := kind.make(ctx, s, random, func(connectors []int, format string, args ...any) {
		f = s.log.begin(kind, time.Now(), connectors, fmt.Sprintf(format, args...))
	})
	if err != nil || f == nil {
		return err
	}
	if kind.recovery {
		err = s.awaitRecovery(ctx, f)
	}
	s.log.end(f)
	return err
}

// settle is the time for which the system must stay healthy before a fault is over. A frozen process may look
// healthy for a moment.
const settle = 3 * time.Second

// awaitRecovery waits until the fault's connectors are online and stay online. If they do not come back, that
// is a finding.
func (s *system) awaitRecovery(ctx context.Context, f *fault) error {
	for {
		err := rig.Poll(ctx, recoveryLimit, poll, "recovery",
			func(ctx context.Context) error { return s.recovered(ctx, f.connectors) })
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			s.tally.find("no recovery from %s: %v", f, err)
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
	// pulseLate is the delay of a small request from which tunnels may soon be lost: a connector waits 3 s for a
	// pong.
	pulseLate = 1500 * time.Millisecond
	// pulseLimit is the delay that is a finding if the machine is not overloaded.
	pulseLimit = 10 * time.Second
	// crowded is the CPU pressure, in percent, from which the machine counts as overloaded. The soak alone causes
	// less than half of it.
	crowded = 95
)

// pulse sends small requests to the gateway until ctx ends. If one is late on an overloaded machine, tunnels
// may be lost, so it records a fault. If one is very late on another machine, that is a finding.
func (s *system) pulse(ctx context.Context) {
	public := rig.Admin(strings.TrimPrefix(s.gateway.URL, "http://"))
	for command.Pause(ctx, pulseEvery) == nil {
		sent, answered := time.Now(), make(chan struct{})
		go func() {
			defer close(answered) // a refused request counts, too: the gateway may be restarting
			_, _ = public.Call(ctx, http.MethodGet, "/.well-known/postern", nil)
		}()
		select {
		case <-answered:
			continue
		case <-time.After(pulseLate):
		}
		pressure, _ := os.ReadFile("/proc/pressure/cpu") // empty if the kernel does not report it
		if busy := parsePressure(string(pressure)); busy >= crowded {
			f := s.log.begin(machineOverloaded, sent, nil, fmt.Sprintf("some process waited %.0f %% of the time", busy))
			<-answered
			_ = s.awaitRecovery(ctx, f) // it fails only if ctx ends
			s.log.end(f)
			continue
		}
		select {
		case <-answered:
		case <-time.After(pulseLimit):
			s.tally.find("the gateway did not answer a small request for %v, and the machine is not overloaded", pulseLimit)
			<-answered
		}
	}
}

// parsePressure parses "some avg10=1.23 avg60=…": the percentage of the last ten seconds in which some process
// waited for a processor.
func parsePressure(text string) (percent float64) {
	_, _ = fmt.Sscanf(text, "some avg10=%f", &percent) // 0 if it has another form
	return percent
}
