package turns

import (
	"cmp"
	"slices"
	"time"
)

// maxSpread is how many more requests than the least busy connector may run at a connector that is chosen by
// affinity.
const maxSpread = 1

// decide gives places to waiting requests, at the marked connectors and at those that this concerns in turn.
func (a *account) decide() {
	for i := 0; i < len(a.marked); i++ { // models open and close before any is loaded in their place
		if a.marked[i].oneModel {
			a.next(a.marked[i], time.Now())
		}
	}
	for len(a.marked) > 0 {
		c := a.marked[len(a.marked)-1]
		a.marked = a.marked[:len(a.marked)-1]
		c.marked = false
		now := time.Now()
		for {
			if r := a.next(c, now); r != nil {
				w := r.first
				w.line.turns[w.rank].Take(w.path, w)
				a.remove(w)
				w.line.uses++
				w.place.Waited, w.place.rank, w.place.queued = now.Sub(w.since), w.rank, true
				a.grant(w.place, r, now)
				w.ready <- nil
			} else if !c.endFilling() {
				break
			}
		}
	}
}

// next returns the route whose first request is next at a connector, or nil.
func (a *account) next(c *connector, now time.Time) (best *route) {
	full := !c.free()
	if full && !c.oneModel {
		return nil
	}
	for _, s := range c.servers {
		s.waiting = s.waiting[:0]
	}
	for _, r := range c.routes {
		if full && !r.oneModel || r.server == nil || r.line.waiting.Len() == 0 {
			continue
		}
		r.line.raise(now)
		if r.seen != r.line.version || r.line.oneModel > 0 {
			r.first, r.seen = r.line.first(r), r.line.version
		}
		if r.first != nil && r.oneModel {
			r.countWaiting()
		}
	}
	for _, s := range c.servers {
		if s.OneModel {
			s.decide(a, now)
		}
	}
	if full {
		return nil
	}
	var smallest standing
	for _, r := range c.routes {
		if r.server == nil || r.line.waiting.Len() == 0 || r.first == nil || best != nil && r.first.rank > best.first.rank ||
			!r.free() || r.oneModel && r.model != r.server.open {
			continue
		}
		s := r.first.standing(c)
		order := slices.Compare(s[:], smallest[:])
		if best == nil || order < 0 || order == 0 && r.first.older(best.first) {
			best, smallest = r, s
		}
	}
	return best
}

// first returns the line's next request for a route, or nil.
func (l *line) first(r *route) *waiter {
	for i := range l.turns {
		if w, ok := l.turns[i].First(func(w *waiter) bool { return l.mayWait(&w.Request, r) }); ok {
			return w
		}
	}
	return nil
}

// standing orders the first requests of lines at a connector: the smallest is next.
type standing [5]uint64

func (w *waiter) standing(c *connector) standing {
	owner, key := w.place.shares[0].get(c), w.place.shares[1].get(c)
	return standing{uint64(w.rank), uint64(owner.running), uint64(key.running), owner.served, key.served}
}

// free reports whether a connector has a place.
func (c *connector) free() bool {
	return c.online && (c.MaxRequests <= 0 || c.running < c.account.share(c.MaxRequests))
}

// free reports whether a route's server has a place for the line. The loaded model is not considered.
func (r *route) free() bool {
	n := r.line.MaxConcurrency
	if n <= 0 && r.oneModel {
		n = oneModelPlaces
	}
	return n <= 0 || r.server.byLine[r.line] < r.connector.account.share(n)
}

// share returns this gateway's share of a number of places.
func (a *account) share(places int) int { return a.scheduler.settings.Load().share(places) }

// allows reports whether a route is possible for a request.
func (r *route) allows(q *Request) bool {
	id := r.connector.ID
	return r.server != nil && !q.Unfit[id] && !slices.Contains(q.Refused, id)
}

// isLoaded reports whether the server has the route's model loaded and open.
func (r *route) isLoaded() bool {
	return r.oneModel && r.server.loaded == r.model && r.server.closing == nil && !r.server.stale
}

// mayWait reports whether a request may wait for a place of a route: no other route of the line is better by its state.
func (l *line) mayWait(q *Request, r *route) bool {
	if !r.allows(q) {
		return false
	}
	elsewhere := r.oneModel && !r.isLoaded()
	if !r.doubtful && !elsewhere {
		return true
	}
	return !slices.ContainsFunc(l.routes, func(o *route) bool {
		better := r.doubtful && !o.doubtful || elsewhere && o.doubtful == r.doubtful && o.isLoaded()
		return better && o.allows(q)
	})
}

// choose returns the best route of a new request that has a place, or nil.
func (l *line) choose(q *Request) *route {
	best := l.pick(q, 0, 0)
	if best != nil && q.Affinity != 0 && len(l.routes) > 1 {
		return l.pick(q, q.Affinity, best.connector.running+maxSpread)
	}
	return best
}

// pick returns the best route that has a place. Connectors with up to minLoad requests are equally busy.
func (l *line) pick(q *Request, affinity uint64, minLoad int) (best *route) {
	for _, r := range l.routes {
		if r.server == nil || !r.connector.free() || !r.free() || !r.vacant() || !l.mayWait(q, r) {
			continue
		}
		if best == nil || r.better(best, affinity, minLoad) {
			best = r
		}
	}
	return best
}

// better reports whether r is better than b, for a request with an affinity.
func (r *route) better(b *route, affinity uint64, minLoad int) bool {
	if home := r.isLoaded(); home != b.isLoaded() {
		return home
	}
	if r.line.InOrder && r.position != b.position {
		return r.position < b.position
	}
	c, d := r.connector, b.connector
	order := cmp.Compare(max(c.running, minLoad), max(d.running, minLoad))
	if order == 0 && affinity != 0 {
		order = cmp.Compare(Rendezvous(d.ID, affinity), Rendezvous(c.ID, affinity))
	}
	return cmp.Or(order, cmp.Compare(c.lastUsed, d.lastUsed)) < 0
}

// Rendezvous returns the rank of a name in an order that differs between seeds, and changes little if names come or
// go (rendezvous hashing): FNV-1a with the finalizer of MurmurHash3.
func Rendezvous(name string, seed uint64) uint64 {
	h := seed
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 0x100000001b3
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
