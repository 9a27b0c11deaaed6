package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/tests/command"
)

// A load is the clients: requests come at random times, whether or not others
// have been answered, up to a number that the machine can bear.
type load struct {
	s       *system
	running atomic.Int64
	sending sync.WaitGroup
}

// maxRunning bounds the requests at a time, by what is normal for the rate.
func (o options) maxRunning() int64 { return 50 + int64(20*o.Rate) }

// run sends requests until ctx ends. Those under way go on in their own.
func (l *load) run(ctx, requests context.Context) {
	random := l.s.o.random('l')
	for next := time.Now(); ; {
		next = next.Add(time.Duration(random.ExpFloat64() / l.s.o.Rate * float64(time.Second)))
		if late := time.Since(next); late > time.Second { // a machine that was held up does not catch up
			next = next.Add(late)
		}
		if command.Pause(ctx, time.Until(next)) != nil {
			return
		}
		r := compose(random, l.s.nextID())
		r.model, r.key = one(random, one(random, l.s.groups)), l.s.keys.any(random)
		if l.running.Load() >= l.s.o.maxRunning() {
			l.s.tally.hold()
			continue
		}
		l.running.Add(1)
		l.sending.Go(func() {
			defer l.running.Add(-1)
			l.s.tally.start(r)
			o := l.s.clients.send(requests, r)
			if requests.Err() != nil {
				return // the run was broken off, not the request
			}
			o.homes = r.model.during(o.began, o.ended)
			l.s.tally.end(&o)
		})
	}
}
