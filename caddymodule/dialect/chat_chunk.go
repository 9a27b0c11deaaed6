package dialect

import "github.com/postern-dev/postern/caddymodule/dialect/jsonscan"

// choiceState is the progress of one choice of a streamed answer.
type choiceState struct {
	index       int64
	finished    bool // a finish_reason was received
	emptyReason bool // a finish_reason "" was received, which is valid before [DONE]
	text        bool // it has text for the client
	tools       bool // it has begun a tool call
}

// maxChoices limits the choices that are tracked. Further choices are sent to the
// client, but the stream does not wait for their end.
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

// complete reports whether all choices are finished, and there is at least one.
func (s *ChatStream) complete() bool {
	for i := range s.choices {
		if !s.choices[i].finished {
			return false
		}
	}
	return len(s.choices) > 0
}

// finishChoices finishes the choices without a finish_reason at [DONE]: those with an empty
// one, and those of text only. A tool call may be incomplete, and thinking alone is
// not an answer.
func (s *ChatStream) finishChoices() {
	for i := range s.choices {
		c := &s.choices[i]
		if c.finished || !c.emptyReason && (c.tools || !c.text) {
			continue
		}
		c.finished = true
		reason := "stop"
		if c.tools {
			reason = "tool_calls"
		}
		s.out = appendEvent(s.out, func(b []byte) []byte {
			return jsonscan.Appendf(b, `{%s"object":"chat.completion.chunk","model":%s,"choices":[{"index":%d,"delta":{},`+
				`"finish_reason":"%s"}]}`, s.envelope, s.model, c.index, reason)
		})
	}
}

// chunk implements chunkReader. Data that is not JSON ends the stream: some servers
// report errors like this and leave the stream open.
func (s *ChatStream) chunk(data []byte) {
	s.events++
	s.edits, s.scratch = s.edits[:0], s.scratch[:0]
	var choices jsonscan.Span
	usage := false
	kept := 0 // end of the last member that is kept
	m := jsonscan.Object(data)
	for len(s.edits) <= maxEdits && m.Next() {
		if isFailure(&m) {
			s.abort(fromEvent(data))
			return
		}
		raw, drop := m.Raw(), false
		switch string(m.Name()) {
		case "model":
			s.edits.add(m.Value.Start, m.Value.End, s.model)
		case "choices":
			choices = m.Value
		case "usage":
			if u, ok := parseUsage(raw); ok {
				s.usage, s.gotUsage, usage = u, true, true
			}
			drop = !s.o.IncludeUsage
		case "error":
			drop = true
		case "system_fingerprint":
			s.repair = s.repair || string(raw) == `"fp_ollama"`
		case "id":
			s.info.noteID(raw)
			s.keepEnvelope(&m)
		case "created":
			s.keepEnvelope(&m)
		}
		if drop {
			s.dropMember(&m, kept)
		} else {
			kept = m.Value.End
		}
	}
	if len(s.edits) <= maxEdits && !m.Whole() {
		s.abort(garbled(data))
		return
	}
	begun := s.readChoices(data, choices)
	if len(s.edits) > maxEdits && !s.ended {
		s.abort(overfull("keys or tool calls"))
	}
	if s.ended || usage && !begun && !s.o.IncludeUsage {
		return
	}
	s.out = appendEvent(s.out, func(b []byte) []byte { return s.edits.appendTo(b, data) })
}

// keepEnvelope keeps a member of the first chunk for generated chunks.
func (s *ChatStream) keepEnvelope(m *jsonscan.Members) {
	const maxEnvelope = 256
	if s.events > 1 || len(s.envelope)+m.Value.End-m.Key.Start > maxEnvelope {
		return
	}
	s.envelope = append(append(s.envelope, m.Data[m.Key.Start:m.Value.End]...), ',')
}

// dropMember removes a member from its object, with an adjacent comma. kept is the end
// of the last kept member before it, 0 if none.
func (s *ChatStream) dropMember(m *jsonscan.Members, kept int) {
	switch {
	case m.More():
		s.edits.add(m.Key.Start, m.Sep+1, nil)
	case kept == 0:
		s.edits.add(m.Key.Start, m.Value.End, nil)
	default: // the last member: remove everything after the last kept member
		for n := len(s.edits); n > 0 && s.edits[n-1].Start >= kept; n-- {
			s.edits = s.edits[:n-1]
		}
		s.edits.add(kept, m.Value.End, nil)
	}
}

// readChoices processes the choices of a chunk. It reports whether there are any.
func (s *ChatStream) readChoices(data []byte, choices jsonscan.Span) (any bool) {
	if choices.End == 0 || data[choices.Start] != '[' {
		return false
	}
	for list := jsonscan.MembersAt(data, choices.Start); list.Next() && !s.ended; {
		any = true
		if data[list.Value.Start] == '{' {
			s.readChoice(data, list.Value.Start)
		}
	}
	return any
}

// readChoice processes the choice at data[i].
func (s *ChatStream) readChoice(data []byte, i int) {
	var index int64
	var delta, reason []byte
	at, text := 0, false
	for m := jsonscan.MembersAt(data, i); m.Next(); {
		raw := m.Raw()
		switch string(m.Name()) {
		case "index":
			index, _ = jsonscan.Integer(raw)
		case "delta", "message":
			if jsonscan.IsObject(raw) {
				delta, at = raw, m.Value.Start
			}
		case "text":
			text = jsonscan.IsFilled(raw)
			s.count(textSize(raw))
		case "finish_reason":
			reason = raw
		}
	}
	c := s.choice(index)
	c.text = c.text || text
	if delta != nil {
		s.readDelta(c, data, at)
	}
	s.info.noteReason(index, reason)
	switch {
	case !jsonscan.IsString(reason):
	case string(reason) == `""`:
		c.emptyReason = true
	case string(reason) == `"error"` || string(reason) == `"abort"`:
		s.abort(abortedUpstream(jsonscan.Unquote(reason)))
	default:
		c.finished = true
	}
}

// readDelta processes the delta of a choice at data[i].
func (s *ChatStream) readDelta(c *choiceState, data []byte, i int) {
	for m := jsonscan.MembersAt(data, i); m.Next(); {
		switch string(m.Name()) {
		case "content", "refusal":
			c.text = c.text || jsonscan.IsFilled(m.Raw())
			s.count(textSize(m.Raw()))
		case "reasoning_content", "reasoning", "thinking":
			s.count(textSize(m.Raw()))
		case "function_call":
			if jsonscan.IsFilled(m.Raw()) {
				c.tools = true
				s.count(sizeOfCall(m.Raw()))
			}
		case "tool_calls":
			if !jsonscan.IsFilled(m.Raw()) || !jsonscan.IsArray(m.Raw()) {
				continue
			}
			c.tools = true
			s.count(sizeOfCall(m.Raw()))
			if s.repair && c.index == 0 {
				s.repairTools(data, m.Value.Start)
			}
		}
	}
}

// sizeOfCall returns the approximate size of the name and the arguments in a delta of tool
// calls: at least one token.
func sizeOfCall(raw []byte) int64 {
	const frame = 60 // bytes of {"index":0,"function":{"arguments":""}} and so on
	return max(int64(len(raw))-frame, BytesPerToken)
}

// textSize returns the size of a JSON string, 0 for other values.
func textSize(raw []byte) int64 {
	if !jsonscan.IsString(raw) {
		return 0
	}
	return int64(len(raw) - len(`""`))
}

// repairTools corrects the indexes of the tool calls at data[i].
func (s *ChatStream) repairTools(data []byte, i int) {
	for list := jsonscan.MembersAt(data, i); len(s.edits) <= maxEdits && list.Next(); {
		start := list.Value.Start
		if data[start] != '{' {
			continue
		}
		entry, at := readToolEntry(data, start)
		slot := int64(s.tools.assign(&entry))
		if entry.index != slot {
			s.scratch = s.edits.setIndex(data, list.Value, at, slot, s.scratch)
		}
	}
}

// readToolEntry reads the element of tool_calls at data[i] and the member with its index.
func readToolEntry(data []byte, i int) (e toolEntry, index member) {
	e.index = -1
	for m := jsonscan.MembersAt(data, i); m.Next(); {
		raw := m.Raw()
		switch string(m.Name()) {
		case "index":
			index = member{m.Key, m.Value}
			if n, ok := jsonscan.Integer(raw); ok && n >= 0 {
				e.index = n
			}
		case "id":
			e.id = jsonscan.String(raw)
		case "function":
			if !jsonscan.IsObject(raw) {
				continue
			}
			e.readFunction(data, m.Value.Start)
		}
	}
	return e, index
}

// readFunction reads the name and the arguments of the object at data[i].
func (e *toolEntry) readFunction(data []byte, i int) {
	for m := jsonscan.MembersAt(data, i); m.Next(); {
		switch string(m.Name()) {
		case "name":
			e.name = jsonscan.String(m.Raw())
		case "arguments":
			e.raw = m.Raw()
		}
	}
}
