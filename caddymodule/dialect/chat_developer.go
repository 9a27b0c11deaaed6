package dialect

import (
	"bytes"
	"slices"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// roleDeveloper is the role of system messages for newer OpenAI models. The chat
// templates of most local models reject or drop it.
const roleDeveloper = "developer"

// developerFold moves the text of developer messages of a chat request by the rule of
// conversation: of leading ones into one system message, of later ones into the message
// before them, or the next one if that is the assistant's. Only changes are copied.
type developerFold struct {
	data   []byte
	edits  edits
	before jsonscan.Span // the last message that is not a developer message
	role   string        // of before
	folded [][]byte      // texts behind it, as JSON without quotes
}

// foldDeveloper returns the edits for the messages in the array at data[start], at most
// maxElements.
func foldDeveloper(data []byte, start int) (edits, *Error) {
	f := developerFold{data: data}
	var lead [][]byte // texts of leading messages
	var leads jsonscan.Span
	leading, leadingDeveloper, after := true, false, 0
	for list := jsonscan.CheckedAt(data, start); list.Next(); after = list.Value.End {
		if list.Index == maxElements {
			return nil, tooManyElements()
		}
		at, role := list.Value, jsonscan.Text(list.Raw(), "role")
		isDeveloper := role == roleDeveloper
		leading = leading && (isDeveloper || role == "system")
		var text []byte
		if leading || isDeveloper {
			text = messageText(list.Raw())
		}
		switch {
		case leading:
			if list.Index == 0 {
				leads.Start = at.Start
			}
			leads.End, leadingDeveloper = at.End, leadingDeveloper || isDeveloper
			if len(text) > 0 {
				lead = append(lead, text)
			}
		case isDeveloper:
			if len(text) > 0 {
				f.folded = append(f.folded, text)
			}
			f.edits.add(after, at.End, nil)
		case role == "tool", role == "function": // nothing may precede the results of calls
			f.before, f.role = at, role
		default:
			f.moveFolded(at, role)
			f.before, f.role = at, role
		}
	}
	f.moveFolded(jsonscan.Span{}, "")
	if leadingDeveloper {
		f.edits.add(leads.Start, leads.End, textMessage("system", bytes.Join(lead, []byte(`\n\n`))))
	}
	return f.edits, nil
}

// moveFolded moves the folded texts into the message before them, or into next. If neither
// can hold them, they become a user message.
func (f *developerFold) moveFolded(next jsonscan.Span, role string) {
	if len(f.folded) == 0 {
		return
	}
	const begin, end = `<system-reminder>\n`, `\n</system-reminder>`
	text := slices.Concat([]byte(begin), bytes.Join(f.folded, []byte(end+`\n\n`+begin)), []byte(end))
	f.folded = nil
	switch {
	case f.role != "assistant" && f.insert(f.before, text, true):
		return
	case f.role == "assistant" && role == "user" && f.insert(next, text, false):
		return
	}
	removed := &f.edits[len(f.edits)-1] // the last developer message, with the comma before it
	removed.text = slices.Concat([]byte{','}, textMessage("user", text))
}

// insert inserts text at the end of a message's content, or at its beginning: in a
// string, or as a part. It reports whether the content can hold it.
func (f *developerFold) insert(at jsonscan.Span, text []byte, atEnd bool) bool {
	var content jsonscan.Span
	for m := jsonscan.CheckedAt(f.data, at.Start); m.Next(); {
		if string(m.Name()) == "content" {
			content = m.Value
		}
	}
	raw := content.Bytes(f.data)
	separator := []byte(`\n\n`)
	if jsonscan.IsArray(raw) {
		text, separator = jsonscan.Appendf(nil, `{"type":"text","text":"%s"}`, text), []byte{','}
	} else if !jsonscan.IsString(raw) {
		return false
	}
	switch place := content.End - 1; {
	case atEnd && jsonscan.IsFilled(raw):
		f.edits.add(place, place, slices.Concat(separator, text))
	case atEnd:
		f.edits.add(place, place, text)
	case jsonscan.IsFilled(raw):
		f.edits.add(content.Start+1, content.Start+1, slices.Concat(text, separator))
	default: // other text may follow at its end
		return false
	}
	return true
}

// textMessage returns a message. The text is JSON without quotes.
func textMessage(role string, text []byte) []byte {
	return jsonscan.Appendf(nil, `{"role":%q,"content":"%s"}`, role, text)
}

// messageText returns the text of a message, a line for each part, as JSON without quotes.
func messageText(message []byte) (b []byte) {
	content := jsonscan.Member(message, "content")
	if jsonscan.IsString(content) {
		return content[1 : len(content)-1]
	}
	var texts [][]byte
	for part := jsonscan.Checked(content); part.Next(); {
		text := part.Raw()
		if jsonscan.IsObject(text) {
			text = jsonscan.Member(text, "text")
		}
		if jsonscan.IsString(text) && jsonscan.IsFilled(text) {
			texts = append(texts, text[1:len(text)-1])
		}
	}
	return bytes.Join(texts, []byte(`\n`))
}
