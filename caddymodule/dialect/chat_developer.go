package dialect

import (
	"bytes"
	"slices"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// roleDeveloper is the role of system messages for newer OpenAI models, as JSON. The
// chat templates of most local models reject or drop it.
const roleDeveloper = `"developer"`

// foldMessage is the position of a message in a chat request.
type foldMessage struct {
	jsonscan.Span
	after         int // the end of the message before it
	role, content jsonscan.Span
}

// developerFold converts developer messages of a chat request to system messages, as
// conversation does for the other dialects. Leading ones are merged into one system
// message, later ones are folded into the preceding turn. The request is not decoded,
// and only changes are copied.
type developerFold struct {
	data  []byte
	edits edits

	lead    []foldMessage // leading system and developer messages
	waiting []foldMessage // developer messages that were not placed yet
	before  foldMessage   // the last message that is kept
	turn    bool          // before is part of an assistant's turn
	result  bool          // before is the result of a call
}

// foldDeveloper returns the edits for the messages in the array at data[start], at most
// maxElements. If keepInline is set, later messages become system messages in place.
func foldDeveloper(data []byte, start int, keepInline bool) (edits, *Error) {
	f := developerFold{data: data}
	leading, after := true, 0
	for list := jsonscan.CheckedAt(data, start); list.Next(); {
		if list.Index == maxElements {
			return nil, tooManyElements()
		}
		m := f.read(list.Value, after)
		after = list.Value.End
		developer := string(m.role.Bytes(data)) == roleDeveloper
		leading = leading && (developer || string(m.role.Bytes(data)) == `"system"`)
		switch {
		case leading:
			f.lead = append(f.lead, m)
		case developer && keepInline:
			f.rename(m, `"system"`)
		case developer && len(f.texts(m.content)) == 0:
			f.drop(m)
		case developer:
			f.waiting = append(f.waiting, m)
		default:
			f.keep(m)
		}
	}
	f.joinLead()
	f.settle(foldMessage{})
	return f.edits, nil
}

// read returns the position of a message and its parts.
func (f *developerFold) read(at jsonscan.Span, after int) foldMessage {
	m := foldMessage{Span: at, after: after}
	if f.data[at.Start] != '{' {
		return m
	}
	for object := jsonscan.CheckedAt(f.data, at.Start); object.Next(); {
		switch string(object.Name()) {
		case "role":
			m.role = object.Value
		case "content":
			m.content = object.Value
		}
	}
	return m
}

// rename changes the role of a message. role is JSON.
func (f *developerFold) rename(m foldMessage, role string) {
	f.edits.add(m.role.Start, m.role.End, []byte(role))
}

// drop removes a message and the comma before it.
func (f *developerFold) drop(m foldMessage) { f.edits.add(m.after, m.End, nil) }

// joinLead merges the leading messages into one system message.
func (f *developerFold) joinLead() {
	isDeveloper := func(m foldMessage) bool { return string(m.role.Bytes(f.data)) == roleDeveloper }
	if !slices.ContainsFunc(f.lead, isDeveloper) {
		return
	}
	joined := f.insert(f.lead[0], f.joined(f.lead[1:], "", ""), true)
	for i, m := range f.lead {
		switch {
		case i > 0 && joined:
			f.drop(m)
		case isDeveloper(m):
			f.rename(m, `"system"`)
		}
	}
}

// keep processes a message that is kept.
func (f *developerFold) keep(m foldMessage) {
	role := string(m.role.Bytes(f.data))
	result := f.turn && (role == `"tool"` || role == `"function"`)
	if !result {
		f.settle(m)
	}
	f.before, f.turn, f.result = m, result || role == `"assistant"`, result
}

// settle folds the waiting messages. next is the message that follows them, if any. In
// an assistant's turn they are added to the results of its calls, or without results
// to the next user message.
func (f *developerFold) settle(next foldMessage) {
	list := f.waiting
	f.waiting = f.waiting[:0:0]
	if len(list) == 0 {
		return
	}
	text, folded := f.joined(list, `<system-reminder>\n`, `\n</system-reminder>`), false
	switch {
	case !f.turn || f.result:
		folded = f.insert(f.before, text, true)
	case string(next.role.Bytes(f.data)) == `"user"`:
		folded = f.insert(next, text, false)
	}
	if !folded { // the first becomes a user message
		f.rename(list[0], `"user"`)
		f.edits.add(list[0].content.Start, list[0].content.End, jsonscan.Appendf(nil, `"%s"`, text))
		list = list[1:]
	}
	for _, m := range list {
		f.drop(m)
	}
}

// insert inserts text at the end of a message's content, or at its beginning: in an
// existing text or as a new part. It returns false if the content cannot hold text.
func (f *developerFold) insert(m foldMessage, text []byte, atEnd bool) bool {
	content := m.content.Bytes(f.data)
	if !jsonscan.IsString(content) && !bytes.HasPrefix(content, []byte{'['}) {
		return false
	}
	at, open, close := m.content.Start+1, `{"type":"text","text":"`, `"}`
	if parts := f.parts(m.content); len(parts) > 0 {
		part := parts[0]
		if atEnd {
			part = parts[len(parts)-1]
		}
		switch isText, isEmpty := part.End != 0, part.End-part.Start == len(`""`); {
		case isEmpty:
			at, open, close = part.Start+1, "", ""
		case isText && atEnd:
			at, open, close = part.End-1, `\n\n`, ""
		case isText:
			at, open, close = part.Start+1, "", `\n\n`
		case atEnd:
			at, open = m.content.End-1, ","+open
		default:
			close += ","
		}
	}
	if len(text) > 0 {
		f.edits.add(at, at, jsonscan.Appendf(nil, "%s%s%s", open, text, close))
	}
	return true
}

// parts returns the text of each part of a content, a JSON string. The span of a part
// without text is zero.
func (f *developerFold) parts(content jsonscan.Span) (parts []jsonscan.Span) {
	switch raw := content.Bytes(f.data); {
	case jsonscan.IsString(raw):
		return []jsonscan.Span{content}
	case !bytes.HasPrefix(raw, []byte{'['}):
		return nil
	}
	for list := jsonscan.CheckedAt(f.data, content.Start); list.Next(); {
		var text jsonscan.Span
		switch list.Raw()[0] {
		case '"':
			text = list.Value
		case '{':
			for object := jsonscan.CheckedAt(f.data, list.Value.Start); object.Next(); {
				if string(object.Name()) == "text" && jsonscan.IsString(object.Raw()) {
					text = object.Value
				}
			}
		}
		parts = append(parts, text)
	}
	return parts
}

// joined returns the texts of messages, each between begin and end, as JSON without quotes.
func (f *developerFold) joined(list []foldMessage, begin, end string) (b []byte) {
	for _, m := range list {
		for i, text := range f.texts(m.content) {
			switch {
			case i > 0:
				b = append(b, `\n`...)
			case len(b) > 0:
				b = append(append(append(b, end...), `\n\n`...), begin...)
			default:
				b = append(b, begin...)
			}
			b = append(b, text.Bytes(f.data)...)
		}
	}
	if len(b) > 0 {
		b = append(b, end...)
	}
	return b
}

// texts returns the non-empty texts of a content, as JSON without quotes.
func (f *developerFold) texts(content jsonscan.Span) (texts []jsonscan.Span) {
	for _, quoted := range f.parts(content) {
		if quoted.End-quoted.Start > len(`""`) {
			texts = append(texts, jsonscan.Span{Start: quoted.Start + 1, End: quoted.End - 1})
		}
	}
	return texts
}
