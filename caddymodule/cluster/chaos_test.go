package cluster_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

var (
	chaosSeeds = flag.Int("chaos-seeds", 6, "runs of TestChaos")
	chaosSeed  = flag.Int("chaos-seed", -1, "the only run of TestChaos")
)

// TestChaos cuts lines, kills, suspends and starts edges, and sets their clocks, at random, while keys
// are revoked, or suspended by a new owner. What is revoked, and confirmed, no edge may accept, and no request may
// run with it. When all is well again, all edges serve, and confirm.
func TestChaos(t *testing.T) {
	first, runs, length := 0, *chaosSeeds, 10*time.Minute
	if testing.Short() {
		runs = min(runs, 2)
	}
	if *chaosSeed >= 0 {
		first, runs = *chaosSeed, 1
	}
	var sum counts
	for seed := first; seed < first+runs; seed++ {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &chaos{
					rig: newRig(t), random: rand.New(rand.NewPCG(uint64(seed), 1)), disks: map[string]disk{},
					revoked: map[string]string{}, calls: map[string][]*running{}, resumed: map[*edge]time.Time{},
					counts: &sum,
				}
				c.run(length)
			})
		})
	}
	t.Logf("%d revocations were confirmed, %d of them while an edge had no report; %d were not confirmed",
		sum.confirmed, sum.without, sum.unconfirmed)
	if runs > 1 && (sum.confirmed < 50*runs || sum.unconfirmed == 0 || sum.without == 0) {
		t.Error("the runs show too little")
	}
}

// counts are numbers of revocations.
type counts struct{ confirmed, without, unconfirmed int }

type chaos struct {
	*rig
	random *rand.Rand // of the goroutine that runs
	names  []string
	user   string          // whose keys are suspended
	disks  map[string]disk // of the last process of a name

	mu      sync.Mutex
	revoked map[string]string // secrets, with the edge and the time
	calls   map[string][]*running
	resumed map[*edge]time.Time
	*counts
}

// running is a request that runs with a key.
type running struct {
	at    *edge
	ended atomic.Bool
}

// sometimes waits up to a time, mostly much less.
func (c *chaos) sometimes(longest time.Duration) {
	f := c.random.Float64()
	time.Sleep(time.Duration(f * f * f * float64(longest)))
}

// skewed returns a rate that is up to 10 % wrong.
func (c *chaos) skewed() float64 { return 0.9 + c.random.Float64()/5 }

func (c *chaos) run(length time.Duration) {
	c.rate = c.skewed()
	for i := range 2 + c.random.IntN(4) {
		c.names = append(c.names, string(rune('a'+i)))
		c.boot(c.names[i], disk{c.names[i], c.names[i]})
	}
	unlimited := func(a *store.Account) { a.Limits.MaxKeys = 1_000_000 }
	if _, err := c.all()[0].SetAccount(c.Context(), store.DefaultAccount, unlimited); err != nil {
		c.Fatal(err)
	}
	u, err := c.all()[0].CreateUser(c.Context(), store.DefaultAccount, "ann", "", store.RoleAdmin)
	if err != nil {
		c.Fatal(err)
	}
	c.user = u.ID
	c.until(func() bool { return c.all()[0].Suspended(u.ID, time.Now()) }) // the others see it with their first change
	ctx, stop := context.WithCancel(c.Context())
	var parts sync.WaitGroup
	for range 4 {
		random := rand.New(rand.NewPCG(c.random.Uint64(), 2))
		parts.Go(func() { c.revokeKeys(ctx, random) })
	}
	parts.Go(func() { c.check(ctx) })
	for end := time.Now().Add(length); time.Now().Before(end) && !c.Failed(); {
		c.sometimes(20 * time.Second)
		c.disturb()
	}
	c.heal()
	stop()
	parts.Wait()
}

// boot starts an edge.
func (c *chaos) boot(name string, d disk) {
	l := []time.Duration{0, 20 * time.Second, time.Minute}[c.random.IntN(3)]
	if e, err := c.open(name, d, l, c.skewed()); err == nil {
		e.late.Store(true)
		c.disks[name] = d
	}
}

// disturb makes one thing worse, or better.
func (c *chaos) disturb() {
	all := c.all()
	if len(all) == 0 {
		c.boot(c.names[0], disk{c.names[0], fmt.Sprint(c.random.Uint64())})
		return
	}
	e := all[c.random.IntN(len(all))]
	switch works := c.random.IntN(3) > 0; c.random.IntN(14) {
	case 0, 1, 2:
		e.set(works)
	case 3: // the store
		for _, e := range all {
			c.sometimes(2 * time.Second)
			e.set(works)
		}
	case 4:
		c.kill(e)
	case 5:
		c.leave(e)
	case 6, 7:
		c.startAny()
	case 8, 9:
		c.suspendFor(e, time.Duration(c.random.Float64()*float64(2*time.Minute)))
	case 10:
		if !e.suspended() {
			e.jump(time.Duration(c.random.NormFloat64() * float64(5*time.Minute)))
			time.Sleep(2 * time.Second) // until that is seen: it must not make up for a suspension
		}
	case 11:
		e.slow.Store(int64(c.random.Float64() * float64(3*time.Second)))
	case 12:
		c.remove(c.names[c.random.IntN(len(c.names))])
	default:
		c.changeLeader()
	}
}

// suspendFor suspends a machine, where one clock at least goes on.
func (c *chaos) suspendFor(e *edge, d time.Duration) {
	var stood []*time.Duration
	switch c.random.IntN(3) {
	case 0:
		stood = append(stood, &e.off.Boot)
		fallthrough
	case 1:
		stood = append(stood, &e.off.Monotonic)
	}
	e.suspend()
	time.AfterFunc(d, func() {
		c.mu.Lock()
		c.resumed[e] = time.Now()
		c.mu.Unlock()
		e.resume(stood...)
	})
}

// startAny starts a process: again where the last one of its name has run, with its directory on
// another machine, with another directory, or with the directory of another name.
func (c *chaos) startAny() {
	name := c.names[c.random.IntN(len(c.names))]
	d, elsewhere := c.disks[name], fmt.Sprint(c.random.Uint64())
	switch c.random.IntN(6) {
	case 0:
		d.boot = elsewhere
	case 1:
		d = disk{elsewhere, elsewhere}
	case 2:
		d = disk{c.disks[c.names[c.random.IntN(len(c.names))]].instance, elsewhere}
	default:
		for _, e := range c.all() {
			if e.disk == d { // the file is locked
				return
			}
		}
	}
	c.boot(name, d)
}

// remove has an operator remove an edge that has certainly stopped.
func (c *chaos) remove(name string) {
	for _, e := range c.all() {
		if e.name == name {
			return
		}
	}
	for _, e := range c.all() {
		if e.Serving() == nil {
			ctx, cancel := context.WithTimeout(c.Context(), time.Second)
			_ = e.cluster.Remove(ctx, name, true)
			cancel()
			return
		}
	}
}

// heal makes all well, and checks that the cluster is, too.
func (c *chaos) heal() {
	names, instances := map[string]bool{}, map[string]bool{}
	for _, e := range c.all() {
		e.set(true)
		e.slow.Store(0)
		e.resume()
		if names[e.name] || instances[e.disk.instance] {
			c.kill(e)
		}
		names[e.name], instances[e.disk.instance] = true, true
	}
	c.sometimes(20 * time.Second)
	healed := time.Now()
	for _, e := range c.all() {
		for e.Serving() != nil || time.Since(healed) < time.Second {
			if time.Sleep(100 * time.Millisecond); time.Since(healed) > 2*time.Minute {
				c.Fatalf("%s does not serve: %v", e.name, e.Serving())
			}
		}
	}
	time.Sleep(3*time.Minute - time.Since(healed)) // 75 s for the reports of those that were killed; late ones, and L more
	for _, e := range c.all() {
		id, _ := c.rig.key(e)
		if err := e.revoke(c.Context(), id); err != nil {
			c.Errorf("when all is well, %s revokes a key: %v", e.name, err)
		}
	}
}

// revokeKeys creates keys, has requests run with them, and revokes old ones.
func (c *chaos) revokeKeys(ctx context.Context, random *rand.Rand) {
	var keys [][2]string
	for ctx.Err() == nil {
		time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
		all := c.all()
		if len(all) == 0 {
			continue
		}
		e, at := all[random.IntN(len(all))], all[random.IntN(len(all))]
		if e.suspended() || e.Serving() != nil {
			continue
		}
		attempt, cancel := context.WithTimeout(ctx, 20*time.Second)
		if id, secret, err := e.key(attempt); err == nil {
			keys = append(keys, [2]string{id, secret})
		}
		if len(keys) > 0 {
			c.begin(at, keys[random.IntN(len(keys))][1])
		}
		if len(keys) > random.IntN(20) {
			began, without := time.Now(), false
			var err error
			if random.IntN(2) == 0 {
				err = e.revoke(attempt, keys[0][0])
			} else if err = e.give(attempt, keys[0][0], c.user); errors.Is(err, store.ErrConflict) {
				err = e.revoke(attempt, keys[0][0]) // it was revoked, without a confirmation
			}
			for _, other := range e.Edges() {
				without = without || other.Report == nil
			}
			by := fmt.Sprint(e.name, " from ", began.Format(time.TimeOnly), " to ", time.Now().Format(time.TimeOnly))
			if c.note(keys[0][1], by, without, err); err == nil {
				keys = keys[1:]
			}
		}
		cancel()
	}
}

// begin has a request run with a key, if the edge accepts that.
func (c *chaos) begin(e *edge, secret string) {
	if e.suspended() {
		return
	}
	key, ok := e.FindKey(secret)
	if !ok {
		return
	}
	r := &running{at: e}
	begun := key.Begin(netip.Addr{}, func(store.Refusal) { r.ended.Store(true) })
	if e.suspended() || e.Serving() != nil {
		begun.End()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[secret] = append(c.calls[secret], r)
}

func (c *chaos) note(secret, by string, without bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.unconfirmed++
		return
	}
	c.confirmed++
	if without {
		c.without++
	}
	c.revoked[secret] = by
}

// check looks for an edge that accepts what was revoked, or still runs a request with it.
func (c *chaos) check(ctx context.Context) {
	for ctx.Err() == nil && !c.Failed() {
		time.Sleep(100 * time.Millisecond)
		c.mu.Lock()
		all := c.all()
		for _, e := range all {
			if e.suspended() || e.Serving() != nil {
				continue
			}
			for secret, by := range c.revoked {
				if e.accepts(secret) {
					c.Errorf("at %s, %s accepts a key revoked by %s", time.Now().Format(time.TimeOnly), e.name, by)
				}
			}
		}
		for secret, by := range c.revoked {
			c.calls[secret] = slices.DeleteFunc(c.calls[secret], func(r *running) bool {
				return r.ended.Load() || !slices.Contains(all, r.at)
			})
			for _, r := range c.calls[secret] {
				if !r.at.suspended() && time.Since(c.resumed[r.at]) > 2*time.Second {
					c.Errorf("at %s, %s runs a request with a key revoked by %s",
						time.Now().Format(time.TimeOnly), r.at.name, by)
				}
			}
		}
		c.mu.Unlock()
	}
}
