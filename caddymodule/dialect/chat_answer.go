package dialect

import (
	"strconv"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// rewriteCompletion returns the client's body for a whole answer of the upstream: the
// same body with the public model name. It fails if the answer is not a JSON object,
// or is an error with status 200.
func rewriteCompletion(body []byte, model string, info *AnswerInfo) ([]byte, Usage, *Error) {
	a := wholeAnswer{body: body, info: info}
	if err := a.read(model); err != nil {
		return nil, Usage{}, err
	}
	return a.appendTo(make([]byte, 0, len(body)+len(model)+2), body), a.usage, nil
}

// ReplayAsStream converts a whole answer to an event stream with one chunk, and another
// one for its usage. It is used if the upstream answers a streamed request with a whole
// answer.
func ReplayAsStream(body []byte) ([]byte, *Error) {
	a := wholeAnswer{body: body, replay: true}
	if err := a.read(""); err != nil {
		return nil, err
	}
	if !a.hasChoices {
		return nil, noChoices()
	}
	chunks, size := []edits{a.edits}, len(body)+1024
	if a.usageAt.End > 0 && body[a.usageAt.Start] == '{' {
		// Clients expect the usage in a chunk without choices.
		size += len(body) - len(a.choices.Bytes(body))
		chunks[0].add(a.usageAt.Start, a.usageAt.End, []byte("null"))
		chunks = append(chunks, edits{{a.choices, []byte("[]")}, a.object})
	}
	b := make([]byte, 0, size)
	for _, chunk := range chunks {
		b = appendEvent(b, func(b []byte) []byte { return chunk.appendTo(b, body) })
	}
	return append(b, doneEvent...), nil
}

// wholeAnswer collects the edits of a whole answer.
type wholeAnswer struct {
	edits
	body       []byte
	info       *AnswerInfo
	replay     bool // convert it to a chunk
	hasChoices bool
	choices    jsonscan.Span
	usageAt    jsonscan.Span
	object     edit  // that makes it a chunk, or nothing
	usage      Usage // the upstream's, or an estimate
	size       int64 // of texts and tool calls
}

// read reads the answer. Unless model is "", it becomes the model's name.
func (a *wholeAnswer) read(model string) *Error {
	counted := false
	m := jsonscan.Object(a.body)
	for m.Mark = markOf; m.Next(); {
		if isFailure(&m) {
			return fromEvent(a.body)
		}
		switch string(m.Name()) {
		case "id":
			a.info.noteID(m.Raw())
		case "model":
			if len(a.edits) == maxEdits {
				return overfull("model names")
			}
			if model != "" {
				a.add(m.Value.Start, m.Value.End, jsonscan.AppendQuoted(nil, model))
			}
		case "object":
			if a.replay && string(m.Raw()) == `"chat.completion"` && len(a.edits) < maxEdits {
				a.object = edit{m.Value, []byte(`"chat.completion.chunk"`)}
				a.edits = append(a.edits, a.object)
			}
		case "choices":
			a.choices, a.hasChoices = m.Value, jsonscan.IsArray(m.Raw())
		case "usage":
			a.usageAt = m.Value
			a.usage, counted = parseUsage(m.Raw())
		}
	}
	if !m.Whole() {
		return garbled(a.body)
	}
	if a.hasChoices && (m.Seen&markCalls != 0 || a.replay || !counted || a.info.wanted()) {
		if err := a.readChoices(a.choices); err != nil {
			return err
		}
	}
	if !counted {
		a.usage = Usage{CompletionTokens: tokensOf(a.size, 0), Estimated: true}
	}
	return nil
}

// readChoices reads the choices.
func (a *wholeAnswer) readChoices(choices jsonscan.Span) *Error {
	for list := jsonscan.MembersAt(a.body, choices.Start); list.Next(); {
		if !jsonscan.IsObject(list.Raw()) {
			continue
		}
		if err := a.readChoice(list.Value, int64(list.Index)); err != nil {
			return err
		}
		if len(a.edits) > maxEdits {
			return overfull("choices or tool calls")
		}
	}
	return nil
}

// readChoice reads a choice. In a chunk, its message is a delta, and has an index. A choice
// of a text completion has the same format in both.
func (a *wholeAnswer) readChoice(choice jsonscan.Span, position int64) *Error {
	var index, message member
	var reason []byte
	for m := jsonscan.MembersAt(a.body, choice.Start); m.Next(); {
		switch string(m.Name()) {
		case "index":
			index = member{m.Key, m.Value}
		case "message":
			message = member{m.Key, m.Value}
		case "text":
			a.size += textSize(m.Raw())
		case "finish_reason":
			reason = m.Raw()
		}
	}
	if given, ok := jsonscan.Integer(index.value.Bytes(a.body)); ok {
		position = given
	}
	a.info.noteReason(position, reason)
	if !message.found() {
		return nil
	}
	isObject := a.body[message.value.Start] == '{'
	if a.replay {
		if !index.found() {
			a.setIndex(a.body, choice, index, position, nil)
		}
		a.add(message.key.Start, message.key.End, []byte(`"delta"`))
		if !isObject {
			a.add(message.value.Start, message.value.End, []byte("{}"))
		}
	}
	if !isObject {
		return nil
	}
	if a.replay {
		a.numberCalls(message.value.Start)
	}
	a.size += sizeOfMessage(message.value.Bytes(a.body))
	return nil
}

// numberCalls sets the index of the tool calls of the message at body[i] that have none.
func (a *wholeAnswer) numberCalls(i int) {
	for m := jsonscan.MembersAt(a.body, i); m.Next(); {
		if string(m.Name()) != "tool_calls" || !jsonscan.IsArray(m.Raw()) {
			continue
		}
		for list := jsonscan.MembersAt(a.body, m.Value.Start); len(a.edits) <= maxEdits && list.Next(); {
			if entry, at := readToolEntry(a.body, list.Value.Start); entry.index < 0 && jsonscan.IsObject(list.Raw()) {
				a.setIndex(a.body, list.Value, at, int64(list.Index), nil)
			}
		}
	}
}

// sizeOfMessage returns the size of a message's texts and tool calls.
func sizeOfMessage(message []byte) (size int64) {
	for m := jsonscan.MembersAt(message, 0); m.Next(); {
		switch string(m.Name()) {
		case "content", "refusal", "reasoning_content", "reasoning":
			size += textSize(m.Raw())
		case "tool_calls":
			size += int64(len(m.Raw()))
		}
	}
	return size
}

// setIndex sets the index of the object at data[object], replacing the old one if it
// exists. The new text is appended to scratch, which is returned.
func (e *edits) setIndex(data []byte, object jsonscan.Span, old member, index int64, scratch []byte) []byte {
	from := len(scratch)
	if old.found() {
		scratch = strconv.AppendInt(scratch, index, 10)
		e.add(old.value.Start, old.value.End, scratch[from:])
		return scratch
	}
	scratch = strconv.AppendInt(append(scratch, `"index":`...), index, 10)
	if jsonscan.IsFilled(object.Bytes(data)) {
		scratch = append(scratch, ',')
	}
	e.add(object.Start+1, object.Start+1, scratch[from:])
	return scratch
}
