package fair

import (
	"net/netip"
	"slices"
)

// queue holds the waiters of one network. A narrowest network holds them in order;
// a wider one holds the queues of its subnetworks, which take turns.
type queue struct {
	waiters []*waiter
	inside  map[netip.Prefix]*queue
	turns   []netip.Prefix // keys of inside in the order of their turns
	size    int
}

// push adds a waiter. networks are those of the waiter within this network.
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

// pop removes and returns the next waiter. The queue must not be empty.
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

// remove removes a waiter that has given up and reports whether it was queued.
// Removing it at once bounds the memory, and keeps it from using a turn of its
// network.
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
