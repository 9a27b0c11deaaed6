package main

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/postern-dev/postern/tests/command"
)

// path picks a bad path, and returns the connectors that take it.
func (s *system) path(random *rand.Rand) (r *relay, takers []int) {
	i := random.IntN(len(s.relays))
	return s.relays[i], s.members(func(c *connector) bool { return c.relay == i })
}

// spoil makes a path worse for a while, and good again. It does the latter even
// if ctx ends.
func spoil(ctx context.Context, r *relay, loss float64, delay time.Duration, dark bool, d time.Duration) error {
	r.set(loss, delay, dark)
	defer r.set(0, 0, false)
	return command.Pause(ctx, d)
}

// losePackets loses some packets, for less than a tunnel bears without a change
// of its transport.
func losePackets(ctx context.Context, s *system, random *rand.Rand) error {
	r, takers := s.path(random)
	loss := 0.005 + 0.025*random.Float64()
	f := s.log.begin(&pathLossy, takers, "%.1f %%", 100*loss)
	defer s.log.end(f)
	return spoil(ctx, r, loss, 0, false, 2*time.Second+upTo(random, s.atMost(20*time.Second)))
}

// delayPackets delays all packets.
func delayPackets(ctx context.Context, s *system, random *rand.Rand) error {
	r, takers := s.path(random)
	delay := 5*time.Millisecond + upTo(random, 120*time.Millisecond)
	f := s.log.begin(&pathSlow, takers, "%v", delay)
	defer s.log.end(f)
	return spoil(ctx, r, 0, delay, false, 2*time.Second+upTo(random, s.atMost(20*time.Second)))
}

// rebindPath gives the connectors of a path other addresses, at once.
func rebindPath(_ context.Context, s *system, random *rand.Rand) error {
	r, takers := s.path(random)
	f := s.log.begin(&pathRebound, takers, "")
	r.rebind()
	s.log.end(f)
	return nil
}

// flickerPath takes a path away for so short that nothing may happen.
func flickerPath(ctx context.Context, s *system, random *rand.Rand) error {
	r, takers := s.path(random)
	d := upTo(random, 800*time.Millisecond)
	f := s.log.begin(&pathFlickers, takers, "for %v", d)
	defer s.log.end(f)
	return spoil(ctx, r, 0, 0, true, d)
}

// darkenPath takes a path away for longer.
func darkenPath(ctx context.Context, s *system, random *rand.Rand) error {
	r, takers := s.path(random)
	d := 2*time.Second + upTo(random, s.atMost(13*time.Second))
	f := s.log.begin(&pathDark, takers, "for %v", d)
	if err := spoil(ctx, r, 0, 0, true, d); err != nil {
		return err
	}
	return s.mend(ctx, f)
}
