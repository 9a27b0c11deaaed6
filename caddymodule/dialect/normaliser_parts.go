package dialect

import "github.com/postern-dev/postern/caddymodule/dialect/jsonscan"

// readDelta reports the content of the delta at data[i]. Thinking precedes text, which
// precedes calls, regardless of the order of keys.
func (n *normaliser) readDelta(data []byte, i int) {
	var thoughts [3][]byte
	var content, refusal []byte
	calls, legacy := -1, -1
	for m := jsonscan.MembersAt(data, i); m.Next(); {
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
			if jsonscan.IsArray(raw) {
				calls = m.Value.Start
			}
		case "function_call":
			if jsonscan.IsObject(raw) {
				legacy = m.Value.Start
			}
		}
	}
	for _, raw := range thoughts { // proxies send the same text under two names
		if jsonscan.IsString(raw) && jsonscan.IsFilled(raw) { // it may be half of a surrogate pair
			n.emitReasoning(n.unquote(partReason, raw))
			break
		}
	}
	n.readContent(content)
	if jsonscan.IsString(refusal) {
		n.emitRefusal(n.unquote(partRefusal, refusal))
	}
	if calls >= 0 {
		for list := jsonscan.MembersAt(data, calls); list.Next() && !n.ended; {
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
		n.takeContent(n.unquote(partText, raw))
		return
	}
	if !jsonscan.IsArray(raw) {
		return
	}
	for list := jsonscan.MembersAt(raw, 0); list.Next(); {
		part := list.Raw()
		if !jsonscan.IsString(part) {
			part = jsonscan.Member(part, "text")
		}
		if jsonscan.IsString(part) {
			n.readContent(part)
		}
	}
}

// takeContent reports a piece of a content, which may have thinking.
func (n *normaliser) takeContent(s string) {
	switch {
	case s == "":
	case n.thinkTags:
		n.think.take(s, n.emitReasoning, n.emitText)
		if at := n.think.state; at == thinkInside || at == thinkAfter {
			n.dropLogprobs()
		}
	default:
		n.emitText(s)
	}
}

// unquote decodes a piece of text, thinking or a refusal, except for half of a surrogate pair at its
// end. A half of another kind remains alone.
func (n *normaliser) unquote(kind partKind, raw []byte) string {
	if !jsonscan.IsFilled(raw) {
		return ""
	}
	if n.halfOf != kind {
		n.flushHalf()
		n.halfOf = kind
	}
	return n.half.unquote(raw)
}

// flushHalf reports half of a surrogate pair, which remains alone.
func (n *normaliser) flushHalf() {
	s := n.half.rest()
	switch n.halfOf {
	case partReason:
		n.emitReasoning(s)
	case partRefusal:
		n.emitRefusal(s)
	default:
		n.takeContent(s)
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
	if s == "" {
		return
	}
	if n.hasReasoning = true; n.info != nil {
		n.info.Reasoned = true
	}
	n.note(s)
	n.parts.add(partReason, s, nil)
	n.dropLogprobs()
}

// emitRefusal reports a piece of a refusal.
func (n *normaliser) emitRefusal(s string) {
	if s == "" {
		return
	}
	n.flushThinking()
	n.hasText = true
	n.note(s)
	n.parts.add(partRefusal, s, nil)
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

// flushText reports all text and thinking that is buffered.
func (n *normaliser) flushText() {
	if !n.ended {
		n.flushHalf()
		n.flushThinking()
	}
}

// callTool reports the content of an entry of tool_calls.
func (n *normaliser) callTool(e toolEntry) {
	n.flushText()
	n.dropLogprobs()
	k := 0
	if n.whole { // each entry is a separate call, regardless of its id
		k = n.slots.assignNew(&e)
	} else {
		k = n.slots.assign(&e)
	}
	n.note(e.args)
	slot := &n.slots.slots[k]
	switch {
	case slot.state != callNew && e.args != "":
		n.parts.toolArgs(k, e.args)
	case slot.state != callNew:
	case slot.name != "" && (slot.id != "" || len(slot.pending) > 0 || e.args != ""):
		n.parts.toolStart(k, e.args)
	default:
		slot.pending = append(slot.pending, e.args...)
	}
}

// flushArguments reports the halves of surrogate pairs with which arguments end.
func (n *normaliser) flushArguments() {
	for k := range n.slots.slots {
		slot := &n.slots.slots[k]
		if s := slot.half.rest(); s != "" && slot.state != callNew {
			slot.args.add(s)
			n.parts.toolArgs(k, s)
		}
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
		if object, _ := normalArguments(string(slot.pending)); string(compactJSON(object)) != "{}" {
			return true
		}
	}
	return false
}
