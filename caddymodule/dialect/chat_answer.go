package dialect

import "strconv"

// RewriteCompletion is the client's body for a whole answer of the upstream:
// its own, with the public model name. It fails if the answer is no JSON
// object, or is an error that came with a good status.
func RewriteCompletion(body []byte, model string) ([]byte, Usage, *Error) {
	var e edits
	usage, err := e.readCompletion(body, model)
	if err != nil {
		return nil, Usage{}, err
	}
	return e.appendTo(make([]byte, 0, len(body)+len(model)+2), body), usage, nil
}

// readCompletion reads a whole answer. It adds the edits for calls without a name
// and, unless model is "", for the model's name.
func (e *edits) readCompletion(body []byte, model string) (usage Usage, err *Error) {
	var choices span
	m := textOf(body)
	for m.watch = true; m.next(); {
		switch string(m.name()) {
		case "model":
			if len(*e) == maxEdits {
				return Usage{}, overfull("model names")
			}
			if model != "" {
				e.add(m.value.start, m.value.end, appendQuoted(nil, model))
			}
		case "choices":
			choices = m.value
		case "usage":
			usage, _ = parseUsage(m.raw())
		case "error":
			if !isNull(m.raw()) {
				return Usage{}, fromEvent(body)
			}
		case "object":
			if string(m.raw()) == `"error"` {
				return Usage{}, fromEvent(body)
			}
		}
	}
	if !m.whole() {
		return Usage{}, garbled(body)
	}
	if m.seen&markCalls != 0 && choices.end != 0 && body[choices.start] == '[' {
		for list := membersOf(body, choices.start); list.next(); {
			if body[list.value.start] != '{' {
				continue
			}
			for m := membersOf(body, list.value.start); m.next(); {
				if string(m.name()) != "message" || m.raw()[0] != '{' {
					continue
				}
				if e.dropNameless(body, m.value.start, false) {
					return Usage{}, namelessCall()
				}
				if len(*e) > maxEdits {
					return Usage{}, overfull("tool calls")
				}
			}
		}
	}
	return usage, nil
}

// wholeAnswer is where the parts of a whole answer stand.
type wholeAnswer struct {
	body     []byte
	envelope []byte // members that each chunk has, each with a comma behind it
	extras   []byte // members that nobody here knows, so too
	choices  span
	usage    []byte
}

// ReplayAsStream turns a whole answer into the event stream that the upstream
// would have sent, to be fed to a stream: for upstreams that answer a request
// for a stream with a whole answer, or cannot stream it (Error.NeedsWhole).
func ReplayAsStream(body []byte) ([]byte, *Error) {
	var e edits
	if _, err := e.readCompletion(body, ""); err != nil {
		return nil, err
	}
	if len(e) > 0 {
		body = e.appendTo(make([]byte, 0, len(body)), body)
	}
	a := readWhole(body)
	if a.choices.end == 0 || body[a.choices.start] != '[' {
		return nil, noChoices()
	}
	b := make([]byte, 0, len(body)+1024)
	most := 3*len(body) + 256<<10 // each choice brings the envelope along
	for list := membersOf(body, a.choices.start); list.next(); {
		if body[list.value.start] == '{' {
			b = a.appendChoice(b, list.value, list.index)
		}
		if len(b) > most {
			return nil, overfull("choices")
		}
	}
	if len(a.usage) > 0 {
		b = appendEvent(b, func(b []byte) []byte {
			b = append(append(b, '{'), a.envelope...)
			b = append(append(b, `"choices":[],"usage":`...), a.usage...)
			return append(b, '}')
		})
	}
	return append(b, doneEvent...), nil
}

// readWhole finds the parts of a valid answer.
func readWhole(body []byte) *wholeAnswer {
	a := &wholeAnswer{body: body}
	for m := textOf(body); m.next(); {
		member := body[m.key.start:m.value.end]
		switch string(m.name()) {
		case "object":
			if string(m.raw()) == `"chat.completion"` {
				member = []byte(`"object":"chat.completion.chunk"`)
			}
			a.keepEnvelope(member)
		case "id", "created", "model", "system_fingerprint":
			a.keepEnvelope(member)
		case "choices":
			a.choices = m.value
		case "usage":
			if m.raw()[0] == '{' {
				a.usage = m.raw()
			}
		default:
			a.extras = append(append(a.extras, member...), ',')
		}
	}
	return a
}

// keepEnvelope keeps a member for each chunk, unless the envelope gets too large
// to be repeated.
func (a *wholeAnswer) keepEnvelope(member []byte) {
	const most = 2 << 10
	if len(a.envelope)+len(member) < most {
		a.envelope = append(append(a.envelope, member...), ',')
	}
}

// takeExtras gives the extras, once: they are the answer's, not a choice's.
func (a *wholeAnswer) takeExtras() []byte {
	extras := a.extras
	a.extras = nil
	return extras
}

// appendChoice appends the chunks of one choice: its message, then its end.
// The choice of a text completion looks the same streamed, and is one chunk.
func (a *wholeAnswer) appendChoice(b []byte, choice span, position int) []byte {
	index := strconv.AppendInt([]byte(`"index":`), int64(position), 10)
	var message span
	probs := []byte(nil) // logprobs, which come with their text
	rest := []byte(nil)  // finish_reason, and what servers add
	for m := membersOf(a.body, choice.start); m.next(); {
		member := a.body[m.key.start:m.value.end]
		switch string(m.name()) {
		case "index":
			index = member
		case "message":
			message = m.value
		case "logprobs":
			probs = append([]byte{','}, member...)
		default:
			rest = append(append(rest, ','), member...)
		}
	}
	if message.end == 0 {
		return a.appendChunk(b, a.takeExtras(), func(b []byte) []byte { return append(b, choice.of(a.body)...) })
	}
	b = a.appendChunk(b, nil, func(b []byte) []byte {
		b = append(append(append(b, '{'), index...), `,"delta":`...)
		return append(append(a.appendDelta(b, message), probs...), `,"finish_reason":null}`...)
	})
	return a.appendChunk(b, a.takeExtras(), func(b []byte) []byte {
		b = append(append(append(b, '{'), index...), `,"delta":{}`...)
		return append(append(b, rest...), '}')
	})
}

// appendChunk appends one chunk with one choice.
func (a *wholeAnswer) appendChunk(b, extras []byte, choice func([]byte) []byte) []byte {
	return appendEvent(b, func(b []byte) []byte {
		b = append(append(append(b, '{'), a.envelope...), extras...)
		b = choice(append(b, `"choices":[`...))
		return append(b, "]}"...)
	})
}

// appendDelta appends a message as a delta, whose tool calls need an index.
func (a *wholeAnswer) appendDelta(b []byte, message span) []byte {
	raw := message.of(a.body)
	if raw[0] != '{' {
		return append(b, "{}"...)
	}
	from := 0 // of what is not written yet
	for m := membersOf(raw, 0); m.next(); {
		if string(m.name()) != "tool_calls" || m.raw()[0] != '[' {
			continue
		}
		for list := membersOf(raw, m.value.start); list.next(); {
			if raw[list.value.start] == '{' {
				b, from = appendIndexed(b, raw, from, list.value, list.index)
			}
		}
	}
	return append(b, raw[from:]...)
}

// appendIndexed appends data from an index on, up to where the tool call at
// data[call] has got an index if it had none. It returns where data goes on.
func appendIndexed(b, data []byte, from int, call span, index int) ([]byte, int) {
	entry, at := readToolEntry(data, call.start)
	if entry.index >= 0 {
		return b, from
	}
	if at.found() {
		b = append(b, data[from:at.value.start]...)
		return strconv.AppendInt(b, int64(index), 10), at.value.end
	}
	start := call.start + 1
	b = strconv.AppendInt(append(append(b, data[from:start]...), `"index":`...), int64(index), 10)
	if isFilled(call.of(data)) {
		b = append(b, ',')
	}
	return b, start
}
