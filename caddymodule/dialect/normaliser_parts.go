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
		n.parts.refusal(s)
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
	n.size += int64(len(s))
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
	n.parts.text(s, probs)
	n.probs = n.probs[:0]
}

// emitReasoning reports a piece of thinking.
func (n *normaliser) emitReasoning(s string) {
	n.hasReasoning = true
	n.note(s)
	n.parts.reason(s)
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
	for len(n.tools) <= k {
		n.tools = append(n.tools, toolState{})
	}
	t, slot := &n.tools[k], &n.slots.slots[k]
	switch {
	case t.started && e.args != "":
		n.parts.toolArgs(k, e.args)
	case t.started:
	case slot.name != "" && (slot.id != "" || len(t.held) > 0 || e.args != ""):
		n.start(k, e.args)
	default:
		t.held = append(t.held, e.args...)
	}
}

// start reports the start of a call, the buffered arguments, and args.
func (n *normaliser) start(k int, args string) {
	t, slot := &n.tools[k], &n.slots.slots[k]
	t.started = true
	n.parts.toolStart(k, slot.id, slot.name)
	if len(t.held) > 0 {
		args = string(append(t.held, args...))
		t.held = nil
	}
	if args != "" {
		n.parts.toolArgs(k, args)
	}
}

// isCall reports whether a slot is a call. A call has a name.
func (n *normaliser) isCall(k int) bool { return n.slots.slots[k].name != "" }

// startPending starts the calls without an id. It returns the number of calls in the
// answer.
func (n *normaliser) startPending() (calls int) {
	for k := range n.tools {
		if !n.isCall(k) {
			continue
		}
		calls++
		if !n.tools[k].started {
			n.start(k, "")
		}
	}
	return calls
}

// lostCall reports whether there are arguments of a nameless call.
func (n *normaliser) lostCall() bool {
	for k := range n.tools {
		if n.isCall(k) {
			continue
		}
		if object, _ := normalArguments(string(n.tools[k].held)); string(compactJSON(object)) != "{}" {
			return true
		}
	}
	return false
}
