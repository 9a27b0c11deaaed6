package dialect

// Servers send what looks like a tool call and has no name: an id alone, behind
// a text that has ended, or an empty entry. There is nothing to call, but clients
// would make a call of it.

// dropNameless takes the calls without a name and without arguments out of the
// message, or the delta, at data[i]; with all set, those with arguments too. It
// reports whether it met one with arguments.
func (e *edits) dropNameless(data []byte, i int, all bool) (lost bool) {
	for m := membersOf(data, i); m.next() && len(*e) <= maxEdits; {
		switch raw := m.raw(); string(m.name()) {
		case "tool_calls":
			if raw[0] == '[' {
				lost = e.dropFrom(data, m.value.start, all) || lost
			}
		case "function_call":
			if raw[0] != '{' {
				continue
			}
			if named, argued := readCallParts(data, m.value.start); !named {
				lost = lost || argued
				if all || !argued {
					e.add(m.value.start, m.value.end, []byte("null"))
				}
			}
		}
	}
	return lost
}

// dropFrom is dropNameless for the list at data[i].
func (e *edits) dropFrom(data []byte, i int, all bool) (lost bool) {
	kept, before := 0, i+1 // before is the end of the element before
	for list := membersOf(data, i); len(*e) <= maxEdits && list.next(); {
		named, argued := true, false
		if list.raw()[0] == '{' {
			named, argued = readCall(data, list.value.start)
		}
		lost = lost || !named && argued
		switch {
		case named || argued && !all:
			kept++
		case kept > 0:
			e.add(before, list.value.end, nil)
		case list.at0(list.sep) == ',':
			e.add(list.value.start, list.sep+1, nil)
		default:
			e.add(list.value.start, list.value.end, nil)
		}
		before = list.value.end
	}
	return lost
}

// readCall reports whether the call at data[i] has a name, and arguments. What
// is called stands in a member that is named by the call's type.
func readCall(data []byte, i int) (named, argued bool) {
	for m := membersOf(data, i); m.next(); {
		if m.raw()[0] == '{' {
			name, arguments := readCallParts(data, m.value.start)
			named, argued = named || name, argued || arguments
		}
	}
	return named, argued
}

// readCallParts is readCall for the object that holds the name.
func readCallParts(data []byte, i int) (named, argued bool) {
	for m := membersOf(data, i); m.next(); {
		switch raw := m.raw(); string(m.name()) {
		case "name":
			named = named || isString(raw) && isFilled(raw)
		case "arguments", "input":
			argued = argued || isFilled(raw) && string(raw) != `"{}"`
		}
	}
	return named, argued
}
