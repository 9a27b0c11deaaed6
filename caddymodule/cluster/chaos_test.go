package cluster_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// TestChaos cuts lines, and kills and starts edges at random, while keys are revoked. What is
// revoked, and confirmed, no edge may accept.
//
// POSTERN_CHAOS is the number of runs, or seed=N for one.
func TestChaos(t *testing.T) {
	first, runs, length := uint64(0), uint64(6), 15*time.Minute
	if testing.Short() {
		runs, length = 2, 4*time.Minute
	}
	if s := os.Getenv("POSTERN_CHAOS"); s != "" {
		if n, err := fmt.Sscanf(s, "seed=%d", &first); n == 1 && err == nil {
			runs = 1
		} else if runs, err = strconv.ParseUint(s, 10, 32); err != nil {
			t.Fatal(err)
		}
	}
	var confirmed, unconfirmed, proven, lent int
	for seed := first; seed < first+runs; seed++ {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &chaos{rig: newRig(t), random: rand.New(rand.NewPCG(seed, 1)), revoked: map[string]string{}}
				c.run(length)
				confirmed, unconfirmed, proven, lent = confirmed+c.confirmed, unconfirmed+c.unconfirmed, proven+c.proven, lent+c.lent
			})
		})
	}
	t.Logf("%d revocations were confirmed, %d of them while an edge had no report; %d were not confirmed; %d times an edge served on lent time",
		confirmed, proven, unconfirmed, lent)
	if first == 0 && (confirmed < 50 || !testing.Short() && (unconfirmed == 0 || proven == 0 || lent == 0)) {
		t.Error("the runs show too little")
	}
}

type chaos struct {
	*rig
	random   *rand.Rand // of the goroutine that runs
	maxStale time.Duration
	names    []string
	calm     atomic.Bool // nothing is revoked

	mu                             sync.Mutex
	revoked                        map[string]string // secrets, with the edge and the time
	confirmed, unconfirmed, proven int
	lent                           int // looks that found an edge serving that has not had contact
}

// sometimes waits up to a time, mostly much less.
func (c *chaos) sometimes(longest time.Duration) {
	f := c.random.Float64()
	time.Sleep(time.Duration(f * f * f * float64(longest)))
}

func (c *chaos) run(length time.Duration) {
	c.maxStale = time.Duration(c.random.IntN(2)) * time.Minute
	for i := range 2 + c.random.IntN(4) {
		c.names = append(c.names, string(rune('a'+i)))
		c.start(c.names[i], c.maxStale)
	}
	ctx, stop := context.WithCancel(c.Context())
	var running sync.WaitGroup
	for range 4 {
		seed := c.random.Uint64()
		running.Go(func() { c.revoke(ctx, rand.New(rand.NewPCG(seed, 2))) })
	}
	running.Go(func() { c.check(ctx) })
	for end := time.Now().Add(length); time.Now().Before(end) && !c.Failed(); {
		c.sometimes(30 * time.Second)
		c.disturb()
	}
	stop()
	running.Wait()
}

// disturb makes one thing worse, or better.
func (c *chaos) disturb() {
	name := c.names[c.random.IntN(len(c.names))]
	e := c.all()[name]
	switch works := c.random.IntN(3) > 0; c.random.IntN(10) {
	case 0, 1, 2:
		if e != nil {
			e.line.set(works)
		}
	case 3, 4:
		other := c.names[c.random.IntN(len(c.names))]
		c.rig.mu.Lock()
		c.cut[[2]string{min(name, other), max(name, other)}] = !works
		c.rig.mu.Unlock()
	case 5: // the store
		for _, e := range c.all() {
			c.sometimes(2 * time.Second)
			e.line.set(works)
		}
	case 6:
		if e != nil {
			c.drop(name)
			e.stop()
		}
	case 7:
		if e != nil && e.Serving() == nil {
			c.drop(name)
			ctx, cancel := context.WithTimeout(c.Context(), time.Second)
			_ = e.cluster.Leave(ctx)
			cancel()
			e.line.die()
			_ = e.Close()
			return
		}
		fallthrough
	case 8:
		if e == nil {
			c.startAt(name, works)
		}
	default:
		c.outage()
	}
}

// startAt starts an edge, over a line that is cut if it does not work.
func (c *chaos) startAt(name string, works bool) {
	l := newLine(c.kv)
	l.set(works)
	if _, err := c.startOver(l, name, name, c.maxStale); err != nil {
		l.die()
	}
}

// outage has the store away from all edges, of which some are killed and start again, and then
// come back one by one.
func (c *chaos) outage() {
	if c.random.IntN(3) > 0 { // until there are copies with all that was revoked
		c.calm.Store(true)
		time.Sleep(8 * time.Second)
	}
	for _, e := range c.all() {
		e.line.set(false)
	}
	c.calm.Store(false)
	c.sometimes(time.Minute)
	for range c.random.IntN(3) {
		name := c.names[c.random.IntN(len(c.names))]
		if e := c.all()[name]; e != nil {
			c.drop(name)
			e.stop()
		}
		c.sometimes(5 * time.Second)
		c.startAt(name, false)
		c.sometimes(20 * time.Second)
	}
	for _, e := range c.all() {
		c.sometimes(10 * time.Second)
		e.line.set(true)
	}
}

func (c *chaos) drop(name string) {
	c.rig.mu.Lock()
	defer c.rig.mu.Unlock()
	delete(c.edges, name)
}

// oldKey is a key that edges which lose the store later know.
type oldKey struct{ id, secret string }

// revoke creates keys and revokes old ones.
func (c *chaos) revoke(ctx context.Context, random *rand.Rand) {
	var keys []oldKey
	for ctx.Err() == nil {
		time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
		e := c.all()[c.names[random.IntN(len(c.names))]]
		if e == nil || e.Serving() != nil || c.calm.Load() {
			continue
		}
		attempt, cancel := context.WithTimeout(ctx, 20*time.Second)
		if k, secret, err := e.CreateKey(attempt, store.Key{Account: store.DefaultAccount, Name: fmt.Sprint(rand.Uint64()), Scope: "*"}); err == nil {
			keys = append(keys, oldKey{k.ID, secret})
		}
		if old := len(keys) - random.IntN(60); old > 0 {
			begun := time.Now()
			_, err := e.RevokeKey(attempt, store.DefaultAccount, keys[0].id)
			c.note(e, keys[0].secret, begun, err)
			if err == nil {
				keys = keys[1:]
			}
		}
		cancel()
	}
}

func (c *chaos) note(e *edge, secret string, begun time.Time, err error) {
	lost := false
	for _, other := range e.Edges() {
		lost = lost || other.Report == nil && other.OnStoreLoss > 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.unconfirmed++
		return
	}
	c.confirmed++
	if lost {
		c.proven++
	}
	c.revoked[secret] = fmt.Sprintf("%s from %s to %s", e.name, begun.Format(time.TimeOnly), time.Now().Format("15:04:05.000"))
}

// check looks for an edge that accepts what was revoked.
func (c *chaos) check(ctx context.Context) {
	for ctx.Err() == nil && !c.Failed() {
		time.Sleep(100 * time.Millisecond)
		c.mu.Lock()
		for _, e := range c.all() {
			if e.Serving() == nil && e.cluster.Stale() > time.Hour {
				c.lent++
			}
		}
		for secret, by := range c.revoked {
			for name, e := range c.all() {
				if e.accepts(secret) {
					c.Errorf("at %s, %s accepts a key revoked by %s; stale %v", time.Now().Format("15:04:05.000"), name, by, e.cluster.Stale())
				}
			}
		}
		c.mu.Unlock()
	}
}
