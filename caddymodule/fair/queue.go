package fair

import (
	"net/netip"
	"slices"
)

// queue has the waiters of one network: those of the networks in it, which take
// turns, or of the narrowest network the waiters themselves, in their order.
type queue struct {
	waiters []*waiter
	inside  map[netip.Prefix]*queue
	turns   []netip.Prefix // those of inside; the next is the first
	size    int
}

// push adds a waiter with the networks that it has within this one.
func (q *queue) push(networks Networks, w *waiter) {
	q.size++
	if len(networks) == 0 {
		q.waiters = append(q.waiters, w)
		return
	}
	p := networks[0]
	next := q.inside[p]
	if next == nil {
		if q.inside == nil {
			q.inside = make(map[netip.Prefix]*queue)
		}
		next = new(queue)
		q.inside[p] = next
		q.turns = append(q.turns, p)
	}
	next.push(networks[1:], w)
}

// pop takes out the waiter whose turn it is. There must be one.
func (q *queue) pop() *waiter {
	q.size--
	if len(q.waiters) > 0 {
		w := q.waiters[0]
		q.waiters = q.waiters[1:]
		return w
	}
	p := q.turns[0]
	q.turns = q.turns[1:]
	next := q.inside[p]
	w := next.pop()
	if next.size == 0 {
		delete(q.inside, p)
	} else {
		q.turns = append(q.turns, p)
	}
	return w
}

// remove takes a waiter out that has given up, at once: clients that come only to
// give up would fill the memory, and cost their network its turns. It reports whether
// the waiter was there.
func (q *queue) remove(networks Networks, w *waiter) bool {
	if len(networks) == 0 {
		at := slices.Index(q.waiters, w)
		if at < 0 {
			return false
		}
		q.waiters = slices.Delete(q.waiters, at, at+1)
		q.size--
		return true
	}
	p := networks[0]
	next := q.inside[p]
	if next == nil || !next.remove(networks[1:], w) {
		return false
	}
	q.size--
	if next.size == 0 {
		delete(q.inside, p)
		at := slices.Index(q.turns, p)
		q.turns = slices.Delete(q.turns, at, at+1)
	}
	return true
}
