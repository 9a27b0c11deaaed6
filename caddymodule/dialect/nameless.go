package dialect

import "github.com/postern-dev/postern/caddymodule/dialect/jsonscan"

// namelessCalls removes tool calls without a name from a message or delta. Some servers
// send an id alone after the end of a text, or an empty entry. Clients would treat them as
// calls.
type namelessCalls struct {
	edits
	data   []byte
	all    bool // remove those with arguments, too
	number bool // number the other calls that have no index
	lost   bool // there was one with arguments
}

// drop removes the nameless calls of the object at data[i].
func (n *namelessCalls) drop(i int) {
	for m := jsonscan.MembersAt(n.data, i); m.Next() && len(n.edits) <= maxEdits; {
		switch raw := m.Raw(); string(m.Name()) {
		case "tool_calls":
			if raw[0] == '[' {
				n.dropFrom(m.Value.Start)
			}
		case "function_call":
			if raw[0] == '{' && n.drops(readCallParts(raw)) {
				n.add(m.Value.Start, m.Value.End, []byte("null"))
			}
		}
	}
}

// drops reports whether to remove a call.
func (n *namelessCalls) drops(named, argued bool) bool {
	n.lost = n.lost || !named && argued
	return !named && (n.all || !argued)
}

// dropFrom removes the nameless calls of the list at data[i].
func (n *namelessCalls) dropFrom(i int) {
	kept, before := 0, i+1 // before is the end of the previous element
	for list := jsonscan.MembersAt(n.data, i); len(n.edits) <= maxEdits && list.Next(); {
		isObject := list.Raw()[0] == '{'
		switch {
		case !isObject || !n.drops(readCall(list.Raw())):
			if n.number && isObject {
				n.ensureIndex(list.Value, int64(kept))
			}
			kept++
		case kept > 0:
			n.add(before, list.Value.End, nil)
		case list.More():
			n.add(list.Value.Start, list.Sep+1, nil)
		default:
			n.add(list.Value.Start, list.Value.End, nil)
		}
		before = list.Value.End
	}
}

// ensureIndex sets the index of a call unless it has one.
func (n *namelessCalls) ensureIndex(call jsonscan.Span, index int64) {
	if entry, at := readToolEntry(n.data, call.Start); entry.index < 0 {
		n.setIndex(n.data, call, at, index, nil)
	}
}

// readCall reports whether a call has a name and arguments. They are in a member that is
// named after the call's type.
func readCall(call []byte) (named, argued bool) {
	for m := jsonscan.MembersAt(call, 0); m.Next(); {
		if m.Raw()[0] == '{' {
			name, arguments := readCallParts(m.Raw())
			named, argued = named || name, argued || arguments
		}
	}
	return named, argued
}

// readCallParts implements readCall for the object that contains the name.
func readCallParts(object []byte) (named, argued bool) {
	for m := jsonscan.MembersAt(object, 0); m.Next(); {
		switch raw := m.Raw(); string(m.Name()) {
		case "name":
			named = named || jsonscan.IsString(raw) && jsonscan.IsFilled(raw)
		case "arguments", "input":
			argued = argued || jsonscan.IsFilled(raw) && string(raw) != `"{}"`
		}
	}
	return named, argued
}
