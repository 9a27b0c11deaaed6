package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/postern-dev/postern/tests/command"
	"github.com/postern-dev/postern/tests/rig"
)

// An action makes one fault, mends it, and returns when all is well again. Its
// error is one of the soak itself; what the product does wrong is a finding.
type action func(ctx context.Context, s *system, random *rand.Rand) error

// A lane makes one fault after the other, while other lanes make theirs. Each
// kind comes once before one comes again.
type lane struct {
	name    string
	actions []action
	// rest is the mean of the pauses between two faults.
	rest time.Duration
	// length is how long after the start new faults are made.
	length time.Duration
}

// lanes are all of them. In a short run the pauses are shorter.
func (s *system) lanes(rotation bool) []lane {
	connectors := []action{killConnector, freezeConnector, holdUpConnector, restartConnector, reloadConnector}
	if rotation {
		connectors = append(connectors, rotateConnector)
	}
	rest := func(d time.Duration, share time.Duration) time.Duration { return min(d, s.o.Length/share) }
	gateway := []action{reloadGateway, restartGateway, reloadGateway, killGateway}
	return []lane{
		{"gateway", gateway, rest(20*time.Second, 40), s.o.deaths()},
		{"configuration", []action{reloadGateway}, rest(40*time.Second, 10), s.o.Length},
		{"connectors", connectors, rest(4*time.Second, 40), s.o.Length},
		{"hosts", []action{freezeHost}, rest(3*time.Minute, 5), s.o.Length},
		{"paths", []action{losePackets, delayPackets, rebindPath, flickerPath, darkenPath}, rest(4*time.Second, 40), s.o.Length},
		{"model servers", []action{killUpstream}, rest(time.Minute, 6), s.o.Length},
		{"management", []action{moveDeployment, makeKey, moveDeployment, revokeKey}, rest(3*time.Second, 40), s.o.Length},
	}
}

// atMost bounds how long a fault lasts, so that a short run has some of each.
func (s *system) atMost(d time.Duration) time.Duration { return min(d, s.o.Length/12) }

// run runs a lane until its time is over or ctx ends.
func (s *system) run(ctx context.Context, l lane, random *rand.Rand) error {
	end := time.Now().Add(l.length)
	for {
		for _, i := range random.Perm(len(l.actions)) {
			// Half of the mean at least, so that there is a time without.
			if err := command.Pause(ctx, l.rest/2+time.Duration(random.Float64()*float64(l.rest))); err != nil || time.Now().After(end) {
				return nil
			}
			if err := l.actions[i](ctx, s, random); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return fmt.Errorf("making a fault of the %s: %w", l.name, err)
			}
		}
	}
}

// settle is how long all must be well before a fault is over: what was frozen
// may seem well for a moment.
const settle = 3 * time.Second

// mend waits until the fault's connectors are online and stay so, and ends the
// fault. That they do not come back is a finding.
func (s *system) mend(ctx context.Context, f *fault) error {
	for {
		err := rig.Poll(ctx, recoveryLimit, poll, "recovery", func(ctx context.Context) error { return s.recovered(ctx, f.connectors) })
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			s.tally.find("not well again after %s: %v", f, err)
			break
		}
		if err := command.Pause(ctx, settle); err != nil {
			return err
		}
		if s.recovered(ctx, f.connectors) == nil {
			break
		}
	}
	s.log.end(f)
	return nil
}
