package dialect

import "github.com/postern-dev/postern/caddymodule/dialect/jsonscan"

// maxToolSlots bounds what a broken upstream can make a stream remember.
const maxToolSlots = 1024

// toolSlot is one tool call of a streamed answer, as far as it has come.
type toolSlot struct {
	id, name string
	index    int64           // what the upstream calls it, -1 if it sends none
	args     jsonscan.Prefix // the arguments that have come
}

// toolSlots distinguishes the tool calls of one streamed choice. Fragments of a
// call should carry its index, but servers differ: Ollama sends whole calls
// that all have index 0, others leave the index out, or the id, or send both
// with each fragment.
type toolSlots struct {
	slots   []toolSlot
	byID    map[string]int // the latest slot of each id
	byIndex map[int64]int  // likewise
}

// toolEntry is one element of delta.tool_calls.
type toolEntry struct {
	id, name string // "" if missing, null or empty
	index    int64  // -1 if missing
	args     string // the fragment of arguments
}

// held is how many bytes the ids and names have.
func (t *toolSlots) held() (n int64) {
	for i := range t.slots {
		n += int64(len(t.slots[i].id) + len(t.slots[i].name))
	}
	return n
}

// place returns the number of the call that an entry belongs to, and notes
// what it adds.
func (t *toolSlots) place(e toolEntry) int {
	k := t.find(e)
	if k < 0 {
		k = t.begin(e)
	}
	slot := &t.slots[k]
	if slot.id == "" && e.id != "" {
		slot.id = e.id
		t.note(k)
	}
	if slot.name == "" {
		slot.name = e.name
	}
	slot.args.Add(e.args)
	return k
}

// placeNew notes an entry that is a call of its own, and returns its number.
func (t *toolSlots) placeNew(e toolEntry) int {
	k := t.begin(e)
	t.slots[k].args.Add(e.args)
	return k
}

// begin makes a new call of an entry and returns its number; what is beyond
// the bound goes to the last one.
func (t *toolSlots) begin(e toolEntry) int {
	if len(t.slots) < maxToolSlots {
		t.slots = append(t.slots, toolSlot{id: e.id, name: e.name, index: e.index})
		t.note(len(t.slots) - 1)
	}
	return len(t.slots) - 1
}

// note has a slot found by its id and index.
func (t *toolSlots) note(k int) {
	if t.byID == nil {
		t.byID, t.byIndex = make(map[string]int), make(map[int64]int)
	}
	slot := &t.slots[k]
	t.byID[slot.id] = max(k, t.byID[slot.id])
	t.byIndex[slot.index] = max(k, t.byIndex[slot.index])
}

// find returns the slot that an entry continues, -1 for none.
func (t *toolSlots) find(e toolEntry) int {
	last := len(t.slots) - 1
	if e.id != "" {
		if k, ok := t.byID[e.id]; ok {
			return k
		}
	}
	if e.index >= 0 {
		k, ok := t.byIndex[e.index]
		if !ok || e.id != "" && t.slots[k].id != "" && e.name != "" {
			return -1 // new, or the index is used again, for another call
		}
		return k
	}
	if last < 0 {
		return -1
	}
	slot := &t.slots[last]
	if e.id != "" && slot.id != "" {
		return -1
	}
	if e.name != "" && (slot.args.Complete() || slot.name != "" && slot.name != e.name) {
		return -1
	}
	return last
}
