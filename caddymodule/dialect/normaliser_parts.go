package dialect

import "github.com/postern-dev/postern/caddymodule/dialect/jsonscan"

// readDelta reports the content of the delta at data[i]. Thinking precedes text, which
// precedes calls, regardless of the order of keys.
func (n *normaliser) readDelta(data []byte, i int) {
	var thoughts [3][]byte
	var content, refusal []byte
	calls, legacy := -1, -1
	for m := jsonscan.At(data, i); m.Next(); {
		raw := m.Raw()
		switch string(m.Name()) {
		case "reasoning_content":
			thoughts[0] = raw
		case "reasoning":
			thoughts[1] = raw
		case "thinking":
			thoughts[2] = raw
		case "content":
			content = raw
		case "refusal":
			refusal = raw
		case "tool_calls":
			if raw[0] == '[' {
				calls = m.Value.Start
			}
		case "function_call":
			if raw[0] == '{' {
				legacy = m.Value.Start
			}
		}
	}
	for _, raw := range thoughts { // proxies send the same text under two names
		if s := jsonscan.String(raw); s != "" {
			n.emitReasoning(s)
			break
		}
	}
	n.readContent(content)
	if s := jsonscan.String(refusal); s != "" {
		n.flushThinking()
		n.hasText = true
		n.note(s)
		n.parts.add(partRefusal, s, nil)
		n.dropLogprobs()
	}
	if calls >= 0 {
		for list := jsonscan.At(data, calls); list.Next() && !n.ended; {
			if data[list.Value.Start] == '{' {
				entry, _ := readToolEntry(data, list.Value.Start)
				n.callTool(entry)
			}
		}
	}
	if legacy >= 0 && !n.ended { // the predecessor of tool_calls: a single call, number 0
		var entry toolEntry
		entry.readFunction(data, legacy)
		n.callTool(entry)
	}
}

// note counts a piece of the answer.
func (n *normaliser) note(s string) {
	n.begun = true
	n.count(int64(len(s)))
}

// readContent reports the text of a content, which is a string or an array of parts.
func (n *normaliser) readContent(raw []byte) {
	if jsonscan.IsString(raw) {
		switch s := jsonscan.Unquote(raw); {
		case s == "":
		case n.thinkTags:
			n.think.take(s, n.emitReasoning, n.emitText)
			if at := n.think.place; at == thinkInside || at == thinkBehind {
				n.dropLogprobs()
			}
		default:
			n.emitText(s)
		}
		return
	}
	if len(raw) == 0 || raw[0] != '[' {
		return
	}
	for list := jsonscan.At(raw, 0); list.Next(); {
		part := list.Raw()
		if !jsonscan.IsString(part) {
			part = jsonscan.Member(part, "text")
		}
		if jsonscan.IsString(part) {
			n.readContent(part)
		}
	}
}

// emitText reports a piece of text with its log probabilities.
func (n *normaliser) emitText(s string) {
	n.hasText = true
	n.note(s)
	probs := n.probs
	if n.whole && n.hasReasoning && len(probs) > 0 {
		probs = logprobsOf(probs, s)
	}
	n.parts.add(partText, s, probs)
	n.probs = n.probs[:0]
}

// emitReasoning reports a piece of thinking.
func (n *normaliser) emitReasoning(s string) {
	n.hasReasoning = true
	n.note(s)
	n.parts.add(partReason, s, nil)
	n.dropLogprobs()
}

// dropLogprobs drops log probabilities that do not belong to text. Those of a whole
// answer are kept, because they include the text's.
func (n *normaliser) dropLogprobs() {
	if !n.whole {
		n.probs = n.probs[:0]
	}
}

// flushThinking reports the buffered thinking and the text after it.
func (n *normaliser) flushThinking() {
	if n.thinkTags && !n.ended {
		n.think.flush(n.emitReasoning, n.emitText)
	}
}

// callTool reports the content of an entry of tool_calls.
func (n *normaliser) callTool(e toolEntry) {
	n.flushThinking()
	n.dropLogprobs()
	n.note(e.args)
	k := 0
	if n.whole { // each entry is a separate call, regardless of its id
		k = n.slots.placeNew(e)
	} else {
		k = n.slots.place(e)
	}
	slot := &n.slots.slots[k]
	switch {
	case slot.state != callNew && e.args != "":
		n.parts.toolArgs(k, e.args)
	case slot.state != callNew:
	case slot.name != "" && (slot.id != "" || len(slot.held) > 0 || e.args != ""):
		n.parts.toolStart(k, e.args)
	default:
		slot.held = append(slot.held, e.args...)
	}
}

// startPending starts the calls without an id. It returns the number of calls in the
// answer. A call has a name.
func (n *normaliser) startPending() (calls int) {
	for k := range n.slots.slots {
		slot := &n.slots.slots[k]
		if slot.name == "" {
			continue
		}
		calls++
		if slot.state == callNew {
			n.parts.toolStart(k, "")
		}
	}
	return calls
}

// lostCall reports whether there are arguments of a nameless call.
func (n *normaliser) lostCall() bool {
	for _, slot := range n.slots.slots {
		if slot.name != "" {
			continue
		}
		if object, _ := normalArguments(string(slot.held)); string(compactJSON(object)) != "{}" {
			return true
		}
	}
	return false
}
