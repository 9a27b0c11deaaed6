package dialect

import "github.com/postern-dev/postern/caddymodule/dialect/jsonscan"

// Servers send what looks like a tool call and has no name: an id alone, behind
// a text that has ended, or an empty entry. There is nothing to call, but clients
// would make a call of it.

// dropNameless takes the calls without a name and without arguments out of the
// message, or the delta, at data[i]; with all set, those with arguments too. It
// reports whether it met one with arguments.
func (e *edits) dropNameless(data []byte, i int, all bool) (lost bool) {
	for m := jsonscan.At(data, i); m.Next() && len(*e) <= maxEdits; {
		switch raw := m.Raw(); string(m.Name()) {
		case "tool_calls":
			if raw[0] == '[' {
				lost = e.dropFrom(data, m.Value.Start, all) || lost
			}
		case "function_call":
			if raw[0] != '{' {
				continue
			}
			if named, argued := readCallParts(data, m.Value.Start); !named {
				lost = lost || argued
				if all || !argued {
					e.add(m.Value.Start, m.Value.End, []byte("null"))
				}
			}
		}
	}
	return lost
}

// dropFrom is dropNameless for the list at data[i].
func (e *edits) dropFrom(data []byte, i int, all bool) (lost bool) {
	kept, before := 0, i+1 // before is the end of the element before
	for list := jsonscan.At(data, i); len(*e) <= maxEdits && list.Next(); {
		named, argued := true, false
		if list.Raw()[0] == '{' {
			named, argued = readCall(data, list.Value.Start)
		}
		lost = lost || !named && argued
		switch {
		case named || argued && !all:
			kept++
		case kept > 0:
			e.add(before, list.Value.End, nil)
		case list.More():
			e.add(list.Value.Start, list.Sep+1, nil)
		default:
			e.add(list.Value.Start, list.Value.End, nil)
		}
		before = list.Value.End
	}
	return lost
}

// readCall reports whether the call at data[i] has a name, and arguments. What
// is called stands in a member that is named by the call's type.
func readCall(data []byte, i int) (named, argued bool) {
	for m := jsonscan.At(data, i); m.Next(); {
		if m.Raw()[0] == '{' {
			name, arguments := readCallParts(data, m.Value.Start)
			named, argued = named || name, argued || arguments
		}
	}
	return named, argued
}

// readCallParts is readCall for the object that holds the name.
func readCallParts(data []byte, i int) (named, argued bool) {
	for m := jsonscan.At(data, i); m.Next(); {
		switch raw := m.Raw(); string(m.Name()) {
		case "name":
			named = named || jsonscan.IsString(raw) && jsonscan.IsFilled(raw)
		case "arguments", "input":
			argued = argued || jsonscan.IsFilled(raw) && string(raw) != `"{}"`
		}
	}
	return named, argued
}
