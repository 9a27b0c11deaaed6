package fair

import "slices"

// Turns holds waiters W. They belong to groups K, which take turns; groups may have
// groups inside, which take turns within. A narrowest group holds its waiters in order.
// The zero value is empty.
type Turns[K, W comparable] struct {
	waiters []W
	inside  map[K]*Turns[K, W]
	order   []K // keys of inside in the order of their turns
	size    int
}

// Len returns the number of waiters.
func (t *Turns[K, W]) Len() int { return t.size }

// Push adds a waiter. path holds its groups, widest first.
func (t *Turns[K, W]) Push(path []K, w W) {
	t.size++
	if len(path) == 0 {
		t.waiters = append(t.waiters, w)
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
	next.Push(path[1:], w)
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
		at := slices.Index(t.waiters, w)
		if at < 0 {
			return false
		}
		t.waiters = slices.Delete(t.waiters, at, at+1)
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
		at := slices.Index(t.order, path[0])
		t.order = slices.Delete(t.order, at, at+1)
	}
	return true
}

// Of returns the number of waiters of a group.
func (t *Turns[K, W]) Of(group K) int {
	if g := t.inside[group]; g != nil {
		return g.size
	}
	return 0
}

// Longest returns the number of waiters of the group with the most, and its newest one.
// The groups must not have groups inside.
func (t *Turns[K, W]) Longest() (n int, newest W) {
	for _, group := range t.order {
		if g := t.inside[group]; g.size > n {
			n, newest = g.size, g.waiters[g.size-1]
		}
	}
	return n, newest
}
