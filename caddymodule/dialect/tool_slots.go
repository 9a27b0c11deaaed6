package dialect

import "github.com/postern-dev/postern/caddymodule/dialect/jsonscan"

// maxToolSlots is the maximum number of tool calls that are tracked.
const maxToolSlots = 1024

// toolSlot is the received part of a tool call in a streamed answer.
type toolSlot struct {
	id, name string
	index    int64 // the upstream's index, -1 if missing
	args     argumentsEnd
	state    callState
	pending  []byte // arguments that wait for the start of the call
	half     halfPair
}

// callState is the progress of a call in the serialiser.
type callState uint8

const (
	callNew     callState = iota // its name or arguments are missing
	callWaiting                  // another call is open
	callStarted                  // it was opened
)

// toolSlots distinguishes the tool calls of a streamed choice. Fragments of a call should
// have its index, but servers differ. Ollama sends whole calls that all have index 0.
// Others omit the index or the id, or send both with each fragment.
type toolSlots struct {
	slots   []toolSlot
	byID    map[string]int // the latest slot of each id
	byIndex map[int64]int  // the latest slot of each index
}

// toolEntry is one element of delta.tool_calls.
type toolEntry struct {
	id, name string // "" if missing, null or empty
	index    int64  // -1 if missing
	raw      []byte // the fragment of arguments, JSON
	args     string // decoded once its call is known
}

// decode decodes the fragment of arguments. A fragment that is not a string is used as JSON.
func (e *toolEntry) decode(slot *toolSlot) {
	switch {
	case jsonscan.IsString(e.raw):
		e.args = slot.half.unquote(e.raw)
	case len(e.raw) > 0 && !jsonscan.IsNull(e.raw):
		e.args = slot.half.rest() + string(e.raw)
	}
	slot.args.add(e.args)
}

// buffered returns the size of the ids, names and waiting arguments in bytes.
func (t *toolSlots) buffered() (n int64) {
	for i := range t.slots {
		n += int64(len(t.slots[i].id) + len(t.slots[i].name) + cap(t.slots[i].pending))
	}
	return n
}

// assign adds an entry to its call and returns the number of the call.
func (t *toolSlots) assign(e *toolEntry) int {
	k := t.find(*e)
	if k < 0 {
		k = t.begin(*e)
	}
	slot := &t.slots[k]
	if slot.id == "" && e.id != "" {
		slot.id = e.id
		t.note(k)
	}
	if slot.name == "" {
		slot.name = e.name
	}
	e.decode(slot)
	return k
}

// assignNew adds an entry as a separate call and returns its number.
func (t *toolSlots) assignNew(e *toolEntry) int {
	k := t.begin(*e)
	e.decode(&t.slots[k])
	return k
}

// begin creates a call for an entry and returns its number. At the maximum, it returns the
// last call.
func (t *toolSlots) begin(e toolEntry) int {
	if len(t.slots) < maxToolSlots {
		t.slots = append(t.slots, toolSlot{id: e.id, name: e.name, index: e.index})
		t.note(len(t.slots) - 1)
	}
	return len(t.slots) - 1
}

// note indexes a slot by its id and index.
func (t *toolSlots) note(k int) {
	if t.byID == nil {
		t.byID, t.byIndex = make(map[string]int), make(map[int64]int)
	}
	slot := &t.slots[k]
	t.byID[slot.id] = max(k, t.byID[slot.id])
	t.byIndex[slot.index] = max(k, t.byIndex[slot.index])
}

// find returns the slot that an entry continues, or -1.
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
			return -1 // a new call, or the index is reused for another call
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
	if e.name != "" && (slot.args.reached || slot.name != "" && slot.name != e.name) {
		return -1
	}
	return last
}
