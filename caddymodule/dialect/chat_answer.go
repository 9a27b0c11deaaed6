package dialect

import "strconv"

// RewriteCompletion is the client's body for a whole answer of the upstream:
// its own, with the public model name. It fails if the answer is no JSON
// object, or is an error that came with a good status.
func RewriteCompletion(body []byte, model string) ([]byte, Usage, *Error) {
	var e edits
	var usage Usage
	var choices []byte
	told := false
	m := textOf(body)
	for m.next() {
		switch string(m.name()) {
		case "model":
			e.add(m.value.start, m.value.end, appendQuoted(nil, model))
		case "usage":
			usage, told = parseUsage(m.raw())
		case "choices":
			choices = m.raw()
		case "error":
			if !isNull(m.raw()) {
				return nil, Usage{}, fromEvent(body)
			}
		case "object":
			if string(m.raw()) == `"error"` {
				return nil, Usage{}, fromEvent(body)
			}
		}
	}
	if !m.whole() {
		return nil, Usage{}, garbled(body)
	}
	if !told {
		usage = Usage{CompletionTokens: tokensOf(sizeOfChoices(choices)), Estimated: true}
	}
	return e.appendTo(make([]byte, 0, len(body)+len(model)+2), body), usage, nil
}

// sizeOfChoices is the size of the texts and tool calls of a whole answer.
func sizeOfChoices(choices []byte) (size int64) {
	if len(choices) == 0 || choices[0] != '[' {
		return 0
	}
	for list := membersOf(choices, 0); list.next(); {
		if list.raw()[0] != '{' {
			continue
		}
		for m := membersOf(list.raw(), 0); m.next(); {
			switch {
			case string(m.name()) == "text":
				size += textSize(m.raw())
			case string(m.name()) == "message" && m.raw()[0] == '{':
				size += sizeOfMessage(m.raw())
			}
		}
	}
	return size
}

// sizeOfMessage is the size of a message's texts and tool calls.
func sizeOfMessage(message []byte) (size int64) {
	for m := membersOf(message, 0); m.next(); {
		switch string(m.name()) {
		case "content", "refusal", "reasoning_content", "reasoning":
			size += textSize(m.raw())
		case "tool_calls":
			size += int64(len(m.raw()))
		}
	}
	return size
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
	if _, _, err := RewriteCompletion(body, ""); err != nil {
		return nil, err
	}
	a := readWhole(body)
	if a.choices.end == 0 || body[a.choices.start] != '[' {
		return nil, noChoices()
	}
	b := make([]byte, 0, len(body)+1024)
	for list := membersOf(body, a.choices.start); list.next(); {
		if body[list.value.start] == '{' {
			b = a.appendChoice(b, list.value, list.index)
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
			a.envelope = append(append(a.envelope, member...), ',')
		case "id", "created", "model", "system_fingerprint":
			a.envelope = append(append(a.envelope, member...), ',')
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
		return a.appendChunk(b, a.extras, choice.of(a.body))
	}
	start := append(append([]byte{'{'}, index...), `,"delta":`...)
	first := append(append(a.appendDelta(start, message), probs...), `,"finish_reason":null}`...)
	b = a.appendChunk(b, nil, first)
	last := append(append([]byte{'{'}, index...), `,"delta":{}`...)
	return a.appendChunk(b, a.extras, append(append(last, rest...), '}'))
}

// appendChunk appends one chunk with one choice.
func (a *wholeAnswer) appendChunk(b, extras, choice []byte) []byte {
	return appendEvent(b, func(b []byte) []byte {
		b = append(append(append(b, '{'), a.envelope...), extras...)
		b = append(append(b, `"choices":[`...), choice...)
		return append(b, "]}"...)
	})
}

// appendDelta appends a message as a delta, whose tool calls need an index.
func (a *wholeAnswer) appendDelta(b []byte, message span) []byte {
	raw := message.of(a.body)
	if raw[0] != '{' {
		return append(b, "{}"...)
	}
	var e edits
	for m := membersOf(raw, 0); m.next(); {
		if string(m.name()) != "tool_calls" || m.raw()[0] != '[' {
			continue
		}
		for list := membersOf(raw, m.value.start); list.next(); {
			if raw[list.value.start] == '{' {
				e.indexTool(raw, list.value, list.index)
			}
		}
	}
	return e.appendTo(b, raw)
}

// indexTool gives the tool call at data[call] an index if it has none.
func (e *edits) indexTool(data []byte, call span, index int) {
	entry, at := readToolEntry(data, call.start)
	number := strconv.Itoa(index)
	switch {
	case entry.index >= 0:
	case at.found():
		e.add(at.value.start, at.value.end, []byte(number))
	case isFilled(call.of(data)):
		e.add(call.start+1, call.start+1, []byte(`"index":`+number+`,`))
	default:
		e.add(call.start+1, call.start+1, []byte(`"index":`+number))
	}
}
