package dialect

import (
	"container/heap"
	"container/list"
)

// keptRoom is what is kept in all, in one account, or of one key: a tree of
// these three levels. The parts of a room are a heap, the largest first.
type keptRoom struct {
	size  int64 // bytes
	parts []*keptRoom
	named map[string]*keptRoom // the parts by their names: accounts, keys
	at    int                  // in the parts of the room around it
	age   list.List            // of *keptEntry of a key, the oldest first
}

// path are the names of the rooms that a response is in.
func (e *keptEntry) path() []string { return []string{e.id.owner.Account, e.id.owner.Key} }

// add adds a response.
func (r *keptRoom) add(e *keptEntry) {
	e.byOwner = r.change(e.path(), e.size).age.PushBack(e)
}

// remove removes a response.
func (r *keptRoom) remove(e *keptEntry) {
	r.change(e.path(), -e.size).age.Remove(e.byOwner)
}

// change adds bytes to the room at the end of a path, which it returns, and to
// those around it. Rooms are made when they are first used and dropped when
// they are empty.
func (r *keptRoom) change(path []string, by int64) *keptRoom {
	r.size += by
	if len(path) == 0 {
		return r
	}
	part, ok := r.named[path[0]]
	if !ok {
		if r.named == nil {
			r.named = make(map[string]*keptRoom)
		}
		part = new(keptRoom)
		r.named[path[0]] = part
		heap.Push(r, part)
	}
	end := part.change(path[1:], by)
	if part.size == 0 {
		heap.Remove(r, part.at)
		delete(r.named, path[0])
	} else {
		heap.Fix(r, part.at)
	}
	return end
}

// oldestOfLargest returns the oldest response of the key that holds most in the
// account that holds most. The room is not empty.
func (r *keptRoom) oldestOfLargest() *keptEntry {
	for len(r.parts) > 0 {
		r = r.parts[0]
	}
	return r.age.Front().Value.(*keptEntry)
}

// Len implements heap.Interface.
func (r *keptRoom) Len() int { return len(r.parts) }

// Less implements heap.Interface.
func (r *keptRoom) Less(i, j int) bool { return r.parts[i].size > r.parts[j].size }

// Swap implements heap.Interface.
func (r *keptRoom) Swap(i, j int) {
	r.parts[i], r.parts[j] = r.parts[j], r.parts[i]
	r.parts[i].at, r.parts[j].at = i, j
}

// Push implements heap.Interface.
func (r *keptRoom) Push(part any) {
	p := part.(*keptRoom)
	p.at = len(r.parts)
	r.parts = append(r.parts, p)
}

// Pop implements heap.Interface.
func (r *keptRoom) Pop() any {
	last := len(r.parts) - 1
	p := r.parts[last]
	r.parts[last] = nil
	r.parts = r.parts[:last]
	return p
}
