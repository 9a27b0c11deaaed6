package fair

import "slices"

// Turns queues waiters W. They belong to groups K, which take turns. Groups may contain
// groups, which take turns inside. A narrowest group has its waiters in order.
// The zero value is empty.
type Turns[K, W comparable] struct {
	waiters []W
	inside  map[K]*Turns[K, W]
	order   []K // keys of inside, in the order of turns
	size    int
}

// Len returns the number of waiters.
func (t *Turns[K, W]) Len() int { return t.size }

// Push adds a waiter. path holds its groups, widest first.
func (t *Turns[K, W]) Push(path []K, w W) {
	t.Insert(path, w, func(W) bool { return false })
}

// Insert is [Turns.Push], but adds w before the last waiters of its narrowest group that are younger.
func (t *Turns[K, W]) Insert(path []K, w W, younger func(W) bool) {
	t.size++
	if len(path) == 0 {
		i := len(t.waiters)
		for i > 0 && younger(t.waiters[i-1]) {
			i--
		}
		t.waiters = slices.Insert(t.waiters, i, w)
		return
	}
	next := t.inside[path[0]]
	if next == nil {
		if t.inside == nil {
			t.inside = make(map[K]*Turns[K, W])
		}
		next = new(Turns[K, W])
		t.inside[path[0]] = next
		t.order = append(t.order, path[0])
	}
	next.Insert(path[1:], w, younger)
}

// Pop removes and returns the next waiter. There must be one.
func (t *Turns[K, W]) Pop() W {
	t.size--
	if len(t.waiters) > 0 {
		w := t.waiters[0]
		t.waiters = t.waiters[1:]
		return w
	}
	group := t.order[0]
	t.order = t.order[1:]
	next := t.inside[group]
	w := next.Pop()
	if next.size == 0 {
		delete(t.inside, group)
	} else {
		t.order = append(t.order, group)
	}
	return w
}

// Remove removes a waiter that has given up and reports whether it was waiting.
// Removing it at once bounds the memory, and keeps it from using a turn of its groups.
func (t *Turns[K, W]) Remove(path []K, w W) bool {
	if len(path) == 0 {
		i := slices.Index(t.waiters, w)
		if i < 0 {
			return false
		}
		t.waiters = slices.Delete(t.waiters, i, i+1)
		t.size--
		return true
	}
	next := t.inside[path[0]]
	if next == nil || !next.Remove(path[1:], w) {
		return false
	}
	t.size--
	if next.size == 0 {
		delete(t.inside, path[0])
		i := slices.Index(t.order, path[0])
		t.order = slices.Delete(t.order, i, i+1)
	}
	return true
}

// First returns the first waiter, in the order of turns, that may be the next one.
func (t *Turns[K, W]) First(may func(W) bool) (next W, ok bool) {
	for _, w := range t.waiters {
		if may(w) {
			return w, true
		}
	}
	for _, group := range t.order {
		if w, ok := t.inside[group].First(may); ok {
			return w, true
		}
	}
	return next, false
}

// Return makes the groups of a path the next ones: a turn of theirs was not used.
func (t *Turns[K, W]) Return(path []K) {
	for ; len(path) > 0 && t.inside[path[0]] != nil; t, path = t.inside[path[0]], path[1:] {
		i := slices.Index(t.order, path[0])
		t.order = slices.Insert(slices.Delete(t.order, i, i+1), 0, path[0])
	}
}

// Take removes a waiter whose turn it is. Its groups get their next turns after the others.
func (t *Turns[K, W]) Take(path []K, w W) {
	t.Remove(path, w)
	for ; len(path) > 0 && t.inside[path[0]] != nil; t, path = t.inside[path[0]], path[1:] {
		i := slices.Index(t.order, path[0])
		t.order = append(slices.Delete(t.order, i, i+1), path[0])
	}
}

// Longest returns the waiter that a new one with this path may displace: the newest of the group
// with the most waiters, if it has at least two more than the group of the new one. Without that,
// one group could fill a queue. If both belong to the group with the most, the same applies inside.
func (t *Turns[K, W]) Longest(path []K) (newest W, ok bool) {
	for ; len(path) > 0 && t != nil; t, path = t.inside[path[0]], path[1:] {
		own := 0
		if g := t.inside[path[0]]; g != nil {
			own = g.size
		}
		if longest := t.longest(); longest != nil && longest.size >= own+2 {
			return longest.newest(), true
		}
	}
	return newest, false
}

// longest returns the group inside with the most waiters, among equals the one whose turn is last. It
// returns nil without groups.
func (t *Turns[K, W]) longest() (longest *Turns[K, W]) {
	for _, group := range t.order {
		if g := t.inside[group]; longest == nil || g.size >= longest.size {
			longest = g
		}
	}
	return longest
}

// newest returns the last waiter of the largest group inside. There must be one.
func (t *Turns[K, W]) newest() W {
	for len(t.waiters) == 0 {
		t = t.longest()
	}
	return t.waiters[len(t.waiters)-1]
}
