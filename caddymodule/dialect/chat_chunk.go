package dialect

import (
	"bytes"
	"strconv"
)

// choiceState is how far one choice of a streamed answer has come.
type choiceState struct {
	index    int64
	finished bool // its finish_reason has come
	empty    bool // a finish_reason "" has come, which counts before a [DONE]
	text     bool // it has text for the client
	tools    bool // it has begun a tool call
}

// maxChoices bounds what a broken upstream can make a stream remember. A
// choice beyond it goes to the client, but nobody waits for its end.
const maxChoices = 256

// choice returns the state of a choice.
func (s *ChatStream) choice(index int64) *choiceState {
	for i := range s.choices {
		if s.choices[i].index == index {
			return &s.choices[i]
		}
	}
	if len(s.choices) == maxChoices {
		return &choiceState{}
	}
	s.choices = append(s.choices, choiceState{index: index})
	return &s.choices[len(s.choices)-1]
}

// complete reports whether a choice has begun and all that have are finished.
func (s *ChatStream) complete() bool {
	for i := range s.choices {
		if !s.choices[i].finished {
			return false
		}
	}
	return len(s.choices) > 0
}

// settle finishes, at a [DONE], the choices that the upstream forgot to: those
// with an empty finish_reason, and those of text alone. A tool call without an
// end may be half a call, and thinking alone is no answer.
func (s *ChatStream) settle() {
	for i := range s.choices {
		c := &s.choices[i]
		if c.finished || !c.empty && (c.tools || !c.text) {
			continue
		}
		c.finished = true
		reason := "stop"
		if c.tools {
			reason = "tool_calls"
		}
		s.out = appendEvent(s.out, func(b []byte) []byte {
			b = append(append(b, '{'), s.envelope...)
			b = append(append(b, `"object":"chat.completion.chunk","model":`...), s.model...)
			b = strconv.AppendInt(append(b, `,"choices":[{"index":`...), c.index, 10)
			return append(append(append(b, `,"delta":{},"finish_reason":"`...), reason...), `"}]}`...)
		})
	}
}

// chunk acts on one chunk of the answer.
func (s *ChatStream) chunk(data []byte) {
	s.edits, s.scratch = s.edits[:0], s.scratch[:0]
	var choices span
	usage := false
	kept := 0 // end of the last member that stays
	m := textOf(data)
	for len(s.edits) <= maxEdits && m.next() {
		raw, drop := m.raw(), false
		switch string(m.name()) {
		case "model":
			s.edits.add(m.value.start, m.value.end, s.model)
		case "choices":
			choices = m.value
		case "usage":
			if u, ok := parseUsage(raw); ok {
				s.usage, s.gotUsage, usage = u, true, true
			}
			drop = !s.o.IncludeUsage
		case "error":
			if !isNull(raw) {
				s.abort(fromEvent(data))
				return
			}
			drop = true
		case "object":
			if string(raw) == `"error"` {
				s.abort(fromEvent(data))
				return
			}
		case "system_fingerprint":
			s.repair = s.repair || s.o.RepairToolIndex == "" && string(raw) == `"fp_ollama"`
		case "id", "created":
			s.keepEnvelope(&m)
		}
		if drop {
			s.dropMember(&m, kept)
		} else {
			kept = m.value.end
		}
	}
	if len(s.edits) <= maxEdits && !m.whole() {
		s.abort(garbled(data))
		return
	}
	begun := s.readChoices(data, choices)
	if len(s.edits) > maxEdits && !s.done {
		s.abort(overfull("keys or tool calls"))
	}
	if s.done || usage && !begun && !s.o.IncludeUsage {
		return
	}
	s.out = appendEvent(s.out, func(b []byte) []byte { return s.edits.appendTo(b, data) })
}

// keepEnvelope keeps a member of the first chunk, for chunks of our own.
func (s *ChatStream) keepEnvelope(m *members) {
	const most = 256
	if s.events > 1 || len(s.envelope)+m.value.end-m.key.start > most {
		return
	}
	s.envelope = append(append(s.envelope, m.data[m.key.start:m.value.end]...), ',')
}

// dropMember takes a member out of its object, with one of the commas beside
// it. kept is the end of the last member before it that stays, 0 if none.
func (s *ChatStream) dropMember(m *members, kept int) {
	switch {
	case m.at0(m.sep) == ',':
		s.edits.add(m.key.start, m.sep+1, nil)
	case kept == 0:
		s.edits.add(m.key.start, m.value.end, nil)
	default: // the last one: the comma behind what stays goes, with all since
		for n := len(s.edits); n > 0 && s.edits[n-1].start >= kept; n-- {
			s.edits = s.edits[:n-1]
		}
		s.edits.add(kept, m.value.end, nil)
	}
}

// readChoices notes what a chunk's choices say; false if there are none.
func (s *ChatStream) readChoices(data []byte, choices span) (any bool) {
	if choices.end == 0 || data[choices.start] != '[' {
		return false
	}
	for list := membersOf(data, choices.start); list.next() && !s.done; {
		any = true
		if data[list.value.start] == '{' {
			s.readChoice(data, list.value.start)
		}
	}
	return any
}

// readChoice notes what one choice, at data[i], says.
func (s *ChatStream) readChoice(data []byte, i int) {
	var index int64
	var delta, reason []byte
	at, text := 0, false
	for m := membersOf(data, i); m.next(); {
		raw := m.raw()
		switch string(m.name()) {
		case "index":
			index, _ = integer(raw)
		case "delta", "message":
			if raw[0] == '{' {
				delta, at = raw, m.value.start
			}
		case "text":
			text = isFilled(raw)
		case "finish_reason":
			if isString(raw) {
				reason = raw[1 : len(raw)-1]
			}
		}
	}
	c := s.choice(index)
	c.text = c.text || text
	if delta != nil {
		s.readDelta(c, data, at)
	}
	switch {
	case reason == nil:
	case len(reason) == 0:
		c.empty = true
	case string(reason) == "error" || string(reason) == "abort":
		s.abort(gaveUp(string(reason)))
	default:
		c.finished = true
	}
}

// readDelta notes what the delta at data[i] adds to a choice.
func (s *ChatStream) readDelta(c *choiceState, data []byte, i int) {
	before := len(s.edits)
	if c.finished { // what begins now is not a call if it has no name
		s.edits.dropNameless(data, i, !c.tools)
	}
	dropped := len(s.edits) > before
	for m := membersOf(data, i); m.next(); {
		switch string(m.name()) {
		case "content", "refusal":
			c.text = c.text || isFilled(m.raw())
		case "function_call":
			c.tools = c.tools || isFilled(m.raw())
		case "tool_calls":
			if !isFilled(m.raw()) || m.raw()[0] != '[' {
				continue
			}
			if dropped {
				continue
			}
			c.tools = true
			if s.repair && c.index == 0 {
				s.repairTools(data, m.value.start)
			}
		}
	}
}

// repairTools numbers the tool calls at data[i] as they should be.
func (s *ChatStream) repairTools(data []byte, i int) {
	for list := membersOf(data, i); len(s.edits) <= maxEdits && list.next(); {
		start := list.value.start
		if data[start] != '{' {
			continue
		}
		entry, at := readToolEntry(data, start)
		slot := int64(s.tools.place(entry))
		if entry.index == slot {
			continue
		}
		from := len(s.scratch)
		if at.found() {
			s.scratch = strconv.AppendInt(s.scratch, slot, 10)
			s.edits.add(at.value.start, at.value.end, s.scratch[from:])
			continue
		}
		s.scratch = strconv.AppendInt(append(s.scratch, `"index":`...), slot, 10)
		if isFilled(list.raw()) {
			s.scratch = append(s.scratch, ',')
		}
		s.edits.add(start+1, start+1, s.scratch[from:])
	}
}

// readToolEntry reads the element of tool_calls at data[i], and where its
// index stands.
func readToolEntry(data []byte, i int) (e toolEntry, index place) {
	e.index = -1
	for m := membersOf(data, i); m.next(); {
		raw := m.raw()
		switch string(m.name()) {
		case "index":
			index = place{m.key, m.value}
			if n, ok := integer(raw); ok && n >= 0 {
				e.index = n
			}
		case "id":
			e.id = stringOf(raw)
		case "function":
			if raw[0] != '{' {
				continue
			}
			e.readFunction(data, m.value.start)
		}
	}
	return e, index
}

// readFunction reads the name and the arguments in the object at data[i].
// Arguments that are no string count as the JSON that they are.
func (e *toolEntry) readFunction(data []byte, i int) {
	for m := membersOf(data, i); m.next(); {
		switch string(m.name()) {
		case "name":
			e.name = stringOf(m.raw())
		case "arguments":
			if e.args = stringOf(m.raw()); !isString(m.raw()) && !isNull(m.raw()) {
				e.args = string(m.raw())
			}
		}
	}
}

// stringOf decodes a string; "" for any other value.
func stringOf(raw []byte) string {
	if !isString(raw) {
		return ""
	}
	return unquote(raw)
}

// isJSON reports whether data is one JSON value.
func isJSON(data []byte) bool {
	s := scanner{data: bytes.TrimSpace(data)}
	return s.value(0, 0) == len(s.data)
}

// cutOff reports whether data is an event that ended in its middle.
func cutOff(data []byte) bool {
	return !isJSON(data) && string(bytes.TrimSpace(data)) != "[DONE]"
}
