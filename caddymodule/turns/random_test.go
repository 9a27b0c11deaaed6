package turns

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// grant checks that a request was next, and gives it a place.
func (o *oracle) grant(q *asked, p *Place, arriving bool, now time.Time) error {
	for id, s := range o.servers {
		s.filling = s.filling && id[:len(p.Connector)] == p.Connector
	}
	o.close(now)
	ways := o.may(q.Request)
	i := slices.IndexFunc(ways, func(w way) bool { return w.connector == p.Connector })
	if i < 0 || ways[i].server != p.Server || ways[i].model != p.Model {
		return fmt.Errorf("%s may not go to %s/%s", q.name, p.Connector, p.Server)
	}
	w := ways[i]
	if !o.free(q.Deployment, w) || !o.sendable(w, now, arriving) {
		return fmt.Errorf("%s has a place that is not free at %s/%s", q.name, p.Connector, p.Server)
	}
	if arriving {
		if best := o.best(q, ways, now); best != w {
			return fmt.Errorf("%s is at %v, not at %v", q.name, w, best)
		}
	} else if next, _ := o.next(p.Connector, now); next != q {
		return fmt.Errorf("%s is next at %s, not %s", next.name, p.Connector, q.name)
	}
	o.begin(q, w, now)
	return nil
}

// best returns the best free server of a new request.
func (o *oracle) best(q *asked, ways []way, now time.Time) way {
	ways = slices.DeleteFunc(slices.Clone(ways), func(w way) bool {
		return !o.free(q.Deployment, w) || !o.sendable(w, now, true)
	})
	load := func(w way) int { return o.count(func(r *asked) bool { return r.way.connector == w.connector }) }
	order := func(v, w way, least int, affinity uint64) int {
		position := 0
		if o.deps[q.Deployment].InOrder {
			position = cmp.Compare(v.position, w.position)
		}
		return cmp.Or(less(o.home(v), o.home(w)), position, cmp.Compare(max(load(v), least), max(load(w), least)),
			cmp.Compare(Rendezvous(w.connector, affinity)*min(affinity, 1), Rendezvous(v.connector, affinity)*min(affinity, 1)),
			cmp.Compare(o.stamps["used"+v.connector], o.stamps["used"+w.connector]))
	}
	first := slices.MinFunc(ways, func(v, w way) int { return order(v, w, 0, 0) })
	if q.Affinity == 0 {
		return first
	}
	return slices.MinFunc(ways, func(v, w way) int { return order(v, w, load(first)+maxSpread, q.Affinity) })
}

// begin gives a request a place.
func (o *oracle) begin(q *asked, w way, now time.Time) {
	waited := len(o.waiting)
	o.waiting = slices.DeleteFunc(o.waiting, func(r *asked) bool { return r == q })
	o.clock += 2
	if waited > len(o.waiting) {
		o.stamps[q.ownerKey], o.stamps[q.keyKey] = o.clock, o.clock
	}
	q.way, q.clock = w, o.clock
	from := "served " + w.connector
	q.ownerWas = max(o.stamps[from+owner(q)], o.stamps["came"+owner(q)])
	q.keyWas = max(o.stamps[from+key(q)], o.stamps["came"+key(q)])
	o.stamps[from+owner(q)], o.stamps[from+key(q)], o.stamps["used"+w.connector] = o.clock, o.clock, o.clock
	if s := o.server(w); w.oneModel {
		if s.loaded != w.model || s.closing != "" {
			s.ended[s.loaded] = now
			s.loaded, s.closing, s.turn, s.used, s.filling = w.model, "", time.Time{}, false, true
			s.number++
		}
		q.turn = s.number
	}
	o.running = append(o.running, q)
}

// end ends a request that runs or waits.
func (o *oracle) end(q *asked, unused bool) {
	ran := slices.Contains(o.running, q)
	same := func(r *asked) bool { return r == q }
	o.waiting, o.running = slices.DeleteFunc(o.waiting, same), slices.DeleteFunc(o.running, same)
	s := new(loads)
	if ran {
		s = o.server(q.way)
	}
	idle := o.count(func(r *asked) bool { return r.way.connector == q.way.connector && r.way.server == q.way.server }) == 0
	if ran && unused {
		from := "served " + q.way.connector
		for party, was := range map[string]int{owner(q): q.ownerWas, key(q): q.keyWas} {
			if o.stamps[from+party] == q.clock {
				o.stamps[from+party] = was
			}
		}
		if q.ownerKey != "" { // it has waited
			o.stamps[q.ownerKey], o.stamps[q.keyKey] = -o.clock, -o.clock
		}
	}
	if ran && q.turn > 0 && q.turn == s.number {
		if s.used = s.used || !unused; idle && !s.used {
			o.forget(q.way)
		}
	}
	if ran && idle && s.lost {
		o.forget(q.way)
	}
	rest := append(slices.Clone(o.waiting), o.running...)
	for _, party := range []string{owner(q), key(q)} {
		if slices.ContainsFunc(rest, func(r *asked) bool { return owner(r) == party || key(r) == party }) {
			continue
		}
		delete(o.stamps, "came"+party)
		for _, id := range connectors {
			delete(o.stamps, "served "+id+party)
		}
	}
}

func (o *oracle) forget(w way) {
	s := o.server(w)
	s.lost = o.count(func(r *asked) bool { return r.way.connector == w.connector && r.way.server == w.server }) > 0
	if !s.lost {
		s.loaded, s.closing, s.turn = "", "", time.Time{}
	}
}

// rise raises the requests that have waited for half of their maximum.
func (o *oracle) rise(now time.Time) {
	list := slices.Clone(o.waiting)
	slices.SortStableFunc(list, func(p, q *asked) int {
		return cmp.Or(p.rises.Compare(q.rises), p.since.Compare(q.since))
	})
	for _, q := range list {
		if q.rank >= 4 && !now.Before(q.rises) {
			q.rank -= 2
			o.join(q)
		}
	}
}

// connectors of the random tests. The last two load one model at a time.
var connectors = []string{"c1", "c2", "m1", "m2"}

// play plays events against scheduler and oracle. next returns the next choice below n.
func play(t *testing.T, events int, next func(n int) int) {
	g := &game{world: newWorld(t), oracle: newOracle(), next: next, asked: map[string]*asked{}}
	g.cancel, g.errs = map[string]context.CancelFunc{}, map[string]error{}
	g.alive, g.placed = map[string]bool{}, map[string]*Place{}
	g.setSwapAfter(9)
	for _, id := range connectors {
		g.setConnector(id)
	}
	for i := range 5 {
		g.setDeployment(i)
	}
	for i := range events {
		if g.event(i); t.Failed() {
			t.Logf("at event %d", i)
			break
		}
	}
	for _, cancel := range g.cancel {
		cancel()
	}
	synctest.Wait()
	maps.Copy(g.held, g.placed)
	g.empty()
}

func TestRandom(t *testing.T) {
	seeds := uint64(25)
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { play(t, 800, rand.New(rand.NewPCG(seed, 1)).IntN) })
		})
		if t.Failed() {
			return
		}
	}
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte("some requests come, others leave"))
	f.Fuzz(func(t *testing.T, data []byte) {
		synctest.Test(t, func(t *testing.T) {
			play(t, min(len(data)/3, 300), func(n int) int {
				if len(data) == 0 {
					return 0
				}
				c := int(data[0])
				data = data[1:]
				return c % n
			})
		})
	})
}
