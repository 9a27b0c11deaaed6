package dialect

// maxToolSlots bounds what a broken upstream can make a stream remember.
const maxToolSlots = 1024

// toolSlot is one tool call of a streamed answer, as far as it has come.
type toolSlot struct {
	id, name string
	index    int64 // what the upstream calls it, -1 if it does not say
	args     argsProgress
}

// toolSlots tells the tool calls of one streamed choice apart. Fragments of a
// call should carry its index, but servers differ: Ollama sends whole calls
// that all have index 0, others leave the index out, or the id, or send both
// with each fragment.
type toolSlots struct{ slots []toolSlot }

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
	if slot.id == "" {
		slot.id = e.id
	}
	if slot.name == "" {
		slot.name = e.name
	}
	slot.args.add(e.args)
	return k
}

// begin makes a new call of an entry and returns its number; what is beyond
// the bound goes to the last one.
func (t *toolSlots) begin(e toolEntry) int {
	if len(t.slots) < maxToolSlots {
		t.slots = append(t.slots, toolSlot{id: e.id, name: e.name, index: e.index})
	}
	return len(t.slots) - 1
}

// find returns the slot that an entry continues, -1 for none.
func (t *toolSlots) find(e toolEntry) int {
	last := len(t.slots) - 1
	if e.id != "" {
		for k := last; k >= 0; k-- {
			if t.slots[k].id == e.id {
				return k
			}
		}
	}
	if e.index >= 0 {
		for k := last; k >= 0; k-- {
			if slot := &t.slots[k]; slot.index == e.index {
				if e.id != "" && slot.id != "" && e.name != "" {
					return -1 // the index is used again, for another call
				}
				return k
			}
		}
		return -1
	}
	if last < 0 {
		return -1
	}
	slot := &t.slots[last]
	if e.id != "" && slot.id != "" {
		return -1
	}
	if e.name != "" && (slot.args.complete() || slot.name != "" && slot.name != e.name) {
		return -1
	}
	return last
}

// argsProgress follows the arguments of a call to where their JSON object or
// array ends. It only balances brackets: it does not check.
type argsProgress struct {
	depth   int
	begun   bool
	text    bool // inside a string
	escaped bool // behind a backslash
}

// add follows the next fragment.
func (p *argsProgress) add(fragment string) {
	for i := range len(fragment) {
		c := fragment[i]
		switch {
		case p.escaped:
			p.escaped = false
		case p.text && c == '\\':
			p.escaped = true
		case c == '"':
			p.text = !p.text
		case p.text:
		case c == '{' || c == '[':
			p.begun = true
			p.depth++
		case c == '}' || c == ']':
			p.depth--
		}
	}
}

// complete reports whether the brackets that were opened are closed.
func (p *argsProgress) complete() bool { return p.begun && p.depth <= 0 && !p.text }
