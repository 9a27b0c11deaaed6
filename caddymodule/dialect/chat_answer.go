package dialect

import (
	"strconv"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// RewriteCompletion returns the client's body for a whole answer of the upstream: the
// same body with the public model name. It fails if the answer is not a JSON object,
// or is an error with status 200.
func RewriteCompletion(body []byte, model string) ([]byte, Usage, *Error) {
	var e edits
	usage, err := e.readCompletion(body, model)
	if err != nil {
		return nil, Usage{}, err
	}
	return e.appendTo(make([]byte, 0, len(body)+len(model)+2), body), usage, nil
}

// readCompletion reads a whole answer. It adds edits for nameless calls and, unless
// model is "", for the model's name.
func (e *edits) readCompletion(body []byte, model string) (usage Usage, err *Error) {
	var choices jsonscan.Span
	counted := false
	m := jsonscan.Object(body)
	for m.Mark = markOf; m.Next(); {
		if isFailure(&m) {
			return Usage{}, fromEvent(body)
		}
		switch string(m.Name()) {
		case "model":
			if len(*e) == maxEdits {
				return Usage{}, overfull("model names")
			}
			if model != "" {
				e.add(m.Value.Start, m.Value.End, jsonscan.AppendQuoted(nil, model))
			}
		case "choices":
			choices = m.Value
		case "usage":
			usage, counted = parseUsage(m.Raw())
		}
	}
	if !m.Whole() {
		return Usage{}, garbled(body)
	}
	if m.Seen&markCalls != 0 && choices.End != 0 && body[choices.Start] == '[' {
		for list := jsonscan.At(body, choices.Start); list.Next(); {
			if body[list.Value.Start] != '{' {
				continue
			}
			for m := jsonscan.At(body, list.Value.Start); m.Next(); {
				if string(m.Name()) != "message" || m.Raw()[0] != '{' {
					continue
				}
				if e.dropNameless(body, m.Value.Start, false) {
					return Usage{}, namelessCall()
				}
				if len(*e) > maxEdits {
					return Usage{}, overfull("tool calls without a name")
				}
			}
		}
	}
	if !counted {
		usage = Usage{CompletionTokens: tokensOf(sizeOfChoices(body[choices.Start:choices.End])), Estimated: true}
	}
	return usage, nil
}

// sizeOfChoices returns the size of the texts and tool calls of a whole answer.
func sizeOfChoices(choices []byte) (size int64) {
	if len(choices) == 0 || choices[0] != '[' {
		return 0
	}
	for list := jsonscan.At(choices, 0); list.Next(); {
		if list.Raw()[0] != '{' {
			continue
		}
		for m := jsonscan.At(list.Raw(), 0); m.Next(); {
			switch {
			case string(m.Name()) == "text":
				size += textSize(m.Raw())
			case string(m.Name()) == "message" && m.Raw()[0] == '{':
				size += sizeOfMessage(m.Raw())
			}
		}
	}
	return size
}

// sizeOfMessage returns the size of a message's texts and tool calls.
func sizeOfMessage(message []byte) (size int64) {
	for m := jsonscan.At(message, 0); m.Next(); {
		switch string(m.Name()) {
		case "content", "refusal", "reasoning_content", "reasoning":
			size += textSize(m.Raw())
		case "tool_calls":
			size += int64(len(m.Raw()))
		}
	}
	return size
}

// wholeAnswer holds the parts of a whole answer.
type wholeAnswer struct {
	body     []byte
	envelope []byte // members of each chunk, each followed by a comma
	extras   []byte // unknown members, each followed by a comma
	choices  jsonscan.Span
	usage    []byte
}

// ReplayAsStream converts a whole answer to the event stream that the upstream should
// have sent. It is used if the upstream answers a streamed request with a whole
// answer, or cannot stream it (RetryWhole).
func ReplayAsStream(body []byte) ([]byte, *Error) {
	var e edits
	if _, err := e.readCompletion(body, ""); err != nil {
		return nil, err
	}
	if len(e) > 0 {
		body = e.appendTo(make([]byte, 0, len(body)), body)
	}
	a := readWhole(body)
	if a.choices.End == 0 || body[a.choices.Start] != '[' {
		return nil, noChoices()
	}
	b := make([]byte, 0, len(body)+1024)
	most := 3*len(body) + 256<<10 // each choice repeats the envelope
	for list := jsonscan.At(body, a.choices.Start); list.Next(); {
		if body[list.Value.Start] == '{' {
			b = a.appendChoice(b, list.Value, list.Index)
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

// readWhole returns the parts of a valid answer.
func readWhole(body []byte) *wholeAnswer {
	a := &wholeAnswer{body: body}
	for m := jsonscan.Object(body); m.Next(); {
		member := body[m.Key.Start:m.Value.End]
		switch string(m.Name()) {
		case "object":
			if string(m.Raw()) == `"chat.completion"` {
				member = []byte(`"object":"chat.completion.chunk"`)
			}
			a.keepEnvelope(member)
		case "id", "created", "model", "system_fingerprint":
			a.keepEnvelope(member)
		case "choices":
			a.choices = m.Value
		case "usage":
			if m.Raw()[0] == '{' {
				a.usage = m.Raw()
			}
		default:
			a.extras = append(append(a.extras, member...), ',')
		}
	}
	return a
}

// keepEnvelope adds a member to the envelope, unless it gets too large to be repeated.
func (a *wholeAnswer) keepEnvelope(member []byte) {
	const most = 2 << 10
	if len(a.envelope)+len(member) < most {
		a.envelope = append(append(a.envelope, member...), ',')
	}
}

// takeExtras returns the extras once, as they belong to the answer, not to a choice.
func (a *wholeAnswer) takeExtras() []byte {
	extras := a.extras
	a.extras = nil
	return extras
}

// appendChoice appends the chunks of one choice: its message, then its end. A choice
// of a text completion is a single chunk, as its format is the same.
func (a *wholeAnswer) appendChoice(b []byte, choice jsonscan.Span, position int) []byte {
	index := strconv.AppendInt([]byte(`"index":`), int64(position), 10)
	var message jsonscan.Span
	probs := []byte(nil) // logprobs, sent with their text
	rest := []byte(nil)  // finish_reason and unknown members
	for m := jsonscan.At(a.body, choice.Start); m.Next(); {
		member := a.body[m.Key.Start:m.Value.End]
		switch string(m.Name()) {
		case "index":
			index = member
		case "message":
			message = m.Value
		case "logprobs":
			probs = append([]byte{','}, member...)
		default:
			rest = append(append(rest, ','), member...)
		}
	}
	if message.End == 0 {
		return a.appendChunk(b, a.takeExtras(), func(b []byte) []byte { return append(b, choice.Of(a.body)...) })
	}
	b = a.appendChunk(b, nil, func(b []byte) []byte {
		b = append(append(append(b, '{'), index...), `,"delta":`...)
		return append(append(appendDelta(b, message.Of(a.body)), probs...), `,"finish_reason":null}`...)
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

// appendDelta appends a message as a delta. Its tool calls need an index.
func appendDelta(b, message []byte) []byte {
	if message[0] != '{' {
		return append(b, "{}"...)
	}
	var e edits
	for m := jsonscan.At(message, 0); m.Next(); {
		if string(m.Name()) != "tool_calls" || m.Raw()[0] != '[' {
			continue
		}
		for list := jsonscan.At(message, m.Value.Start); list.Next(); {
			if list.Raw()[0] != '{' {
				continue
			}
			if entry, at := readToolEntry(message, list.Value.Start); entry.index < 0 {
				e.setIndex(message, list.Value, at, int64(list.Index), nil)
			}
		}
	}
	return e.appendTo(b, message)
}

// setIndex sets the index of the tool call at data[call], replacing the one at at if it
// exists. The new text is appended to scratch, which is returned.
func (e *edits) setIndex(data []byte, call jsonscan.Span, at place, index int64, scratch []byte) []byte {
	from := len(scratch)
	if at.found() {
		scratch = strconv.AppendInt(scratch, index, 10)
		e.add(at.value.Start, at.value.End, scratch[from:])
		return scratch
	}
	scratch = strconv.AppendInt(append(scratch, `"index":`...), index, 10)
	if jsonscan.IsFilled(call.Of(data)) {
		scratch = append(scratch, ',')
	}
	e.add(call.Start+1, call.Start+1, scratch[from:])
	return scratch
}
