package dialect

import "github.com/postern-dev/postern/caddymodule/dialect/jsonscan"

// Some servers send tool calls without a name: an id alone after the end of a text, or
// an empty entry. Clients would treat them as calls.

// dropNameless removes the nameless calls without arguments from the message or delta
// at data[i]. If all is set, it also removes those with arguments. It reports whether
// there was one with arguments.
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

// dropFrom implements dropNameless for the list at data[i].
func (e *edits) dropFrom(data []byte, i int, all bool) (lost bool) {
	kept, before := 0, i+1 // before is the end of the previous element
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

// readCall reports whether the call at data[i] has a name and arguments. They are in a
// member that is named after the call's type.
func readCall(data []byte, i int) (named, argued bool) {
	for m := jsonscan.At(data, i); m.Next(); {
		if m.Raw()[0] == '{' {
			name, arguments := readCallParts(data, m.Value.Start)
			named, argued = named || name, argued || arguments
		}
	}
	return named, argued
}

// readCallParts implements readCall for the object that contains the name.
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
