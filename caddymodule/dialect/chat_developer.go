package dialect

import "bytes"

// roleDeveloper is the role, as JSON, that clients give the system's messages
// for newer models of OpenAI. Most local models' chat templates refuse or drop
// it.
const roleDeveloper = `"developer"`

// foldMessage is where a message of a chat request stands.
type foldMessage struct {
	span
	after         int // the end of the message before it
	role, content span
}

// developerFold makes the developer's messages of a chat request the system's,
// as conversation does for the other dialects: those at the beginning become one
// with the system's there, later ones are folded into the turn that they follow.
// The request is not decoded, and only what changes is copied.
type developerFold struct {
	data  []byte
	edits edits

	lead   []foldMessage // of system and developer, at the beginning
	waits  []foldMessage // the developer's, until it is known where they belong
	before foldMessage   // the last message that stays
	turn   bool          // it is of an assistant's turn
	result bool          // it is the result of a call
}

// foldDeveloper returns the edits for the messages in the array at data[start].
// keepInline has later messages stay where they are, as the system's. There may
// be maxElements messages.
func foldDeveloper(data []byte, start int, keepInline bool) (edits, *Error) {
	f := developerFold{data: data}
	list := membersOf(data, start)
	list.checked = true
	leading, after := true, 0
	for list.next() {
		if list.index == maxElements {
			return nil, tooManyElements()
		}
		m := f.read(list.value, after)
		after = list.value.end
		developer := string(m.role.of(data)) == roleDeveloper
		leading = leading && (developer || string(m.role.of(data)) == `"system"`)
		switch {
		case leading:
			f.lead = append(f.lead, m)
		case developer && keepInline:
			f.rename(m, `"system"`)
		case developer && len(f.texts(m.content)) == 0:
			f.drop(m)
		case developer:
			f.waits = append(f.waits, m)
		default:
			f.reach(m)
		}
	}
	f.joinLead()
	f.settle(foldMessage{})
	return f.edits, nil
}

// read finds the parts of a message.
func (f *developerFold) read(at span, after int) foldMessage {
	m := foldMessage{span: at, after: after}
	if f.data[at.start] != '{' {
		return m
	}
	object := membersOf(f.data, at.start)
	for object.checked = true; object.next(); {
		switch string(object.name()) {
		case "role":
			m.role = object.value
		case "content":
			m.content = object.value
		}
	}
	return m
}

// rename gives a message another role, as JSON.
func (f *developerFold) rename(m foldMessage, role string) {
	f.edits.add(m.role.start, m.role.end, []byte(role))
}

// drop takes a message out, with the comma before it.
func (f *developerFold) drop(m foldMessage) {
	if n := len(f.edits); n > 0 && f.edits[n-1].end == m.after && f.edits[n-1].text == nil {
		f.edits[n-1].end = m.end
		return
	}
	f.edits.add(m.after, m.end, nil)
}

// joinLead makes the messages at the beginning one of the system.
func (f *developerFold) joinLead() {
	developers := 0
	for _, m := range f.lead {
		if string(m.role.of(f.data)) == roleDeveloper {
			developers++
		}
	}
	if developers == 0 {
		return
	}
	into, ok := f.room(f.lead[0], true)
	for i, m := range f.lead {
		switch {
		case i > 0 && ok:
			f.drop(m)
		case string(m.role.of(f.data)) == roleDeveloper:
			f.rename(m, `"system"`)
		}
	}
	if ok {
		f.fill(into, f.lead[1:], "", "")
	}
}

// reach takes note of a message that stays.
func (f *developerFold) reach(m foldMessage) {
	role := string(m.role.of(f.data))
	result := f.turn && (role == `"tool"` || role == `"function"`)
	if !result {
		f.settle(m)
	}
	f.before, f.turn, f.result = m, result || role == `"assistant"`, result
}

// settle folds the messages that wait: next is the one that follows them, if
// there is one. Those in an assistant's turn come behind the results of its
// calls, else into the user's next message.
func (f *developerFold) settle(next foldMessage) {
	list := f.waits
	f.waits = f.waits[:0:0]
	if len(list) == 0 {
		return
	}
	into, ok := room{}, false
	switch {
	case !f.turn || f.result:
		into, ok = f.room(f.before, true)
	case string(next.role.of(f.data)) == `"user"`:
		into, ok = f.room(next, false)
	}
	if !ok { // the first becomes a message of the user
		f.rename(list[0], `"user"`)
		into = room{at: list[0].content.end, open: `"`, close: `"`}
		f.edits.add(list[0].content.start, list[0].content.end, nil)
	}
	for i, m := range list {
		if ok || i > 0 {
			f.drop(m)
		}
	}
	f.fill(into, list, `<system-reminder>\n`, `\n</system-reminder>`)
}

// room is where text can be put into a message.
type room struct {
	at          int
	open, close string // what stands around the text, as JSON
}

// room finds where text can be put at the end of a message's content, or at its
// beginning: into its text there, or as a part of its own. false: nowhere.
func (f *developerFold) room(m foldMessage, behind bool) (room, bool) {
	switch content := m.content.of(f.data); {
	case isString(content):
		return f.within(m.content, behind), true
	case len(content) == 0 || content[0] != '[':
		return room{}, false
	}
	var text span // of the part at that end
	parts := membersOf(f.data, m.content.start)
	for parts.checked = true; parts.next(); {
		if behind || parts.index == 0 {
			text = f.text(parts.value)
		}
	}
	const open, close = `{"type":"text","text":"`, `"}`
	switch {
	case text.end != 0:
		return f.within(text, behind), true
	case parts.index < 0:
		return room{m.content.start + 1, open, close}, true
	case behind:
		return room{m.content.end - 1, "," + open, close}, true
	}
	return room{m.content.start + 1, open, close + ","}, true
}

// within is the room in a string.
func (f *developerFold) within(quoted span, behind bool) room {
	at := quoted.start + 1
	if behind {
		at = quoted.end - 1
	}
	switch {
	case quoted.end-quoted.start == len(`""`):
		return room{at: at}
	case behind:
		return room{at: at, open: `\n\n`}
	}
	return room{at: at, close: `\n\n`}
}

// text finds the text of a part of content; the zero span if it is none.
func (f *developerFold) text(part span) (text span) {
	switch f.data[part.start] {
	case '"':
		return part
	case '{':
		object := membersOf(f.data, part.start)
		for object.checked = true; object.next(); {
			if string(object.name()) == "text" && isString(object.raw()) {
				text = object.value
			}
		}
	}
	return text
}

// fill puts the texts of messages into a room, each between begin and end.
func (f *developerFold) fill(into room, list []foldMessage, begin, end string) {
	var b []byte
	for _, m := range list {
		texts := f.texts(m.content)
		for i, text := range texts {
			switch {
			case i > 0:
				b = append(b, `\n`...)
			case len(b) > 0:
				b = append(append(b, `\n\n`...), begin...)
			default:
				b = append(append(b, into.open...), begin...)
			}
			b = append(b, text.of(f.data)...)
		}
		if len(texts) > 0 {
			b = append(b, end...)
		}
	}
	if len(b) > 0 {
		f.edits.add(into.at, into.at, append(b, into.close...))
	}
}

// texts are the texts of a content that are not empty, as they stand in JSON
// without their quotes.
func (f *developerFold) texts(content span) (texts []span) {
	add := func(quoted span) {
		if quoted.end-quoted.start > len(`""`) {
			texts = append(texts, span{quoted.start + 1, quoted.end - 1})
		}
	}
	switch raw := content.of(f.data); {
	case isString(raw):
		add(content)
	case bytes.HasPrefix(raw, []byte{'['}):
		parts := membersOf(f.data, content.start)
		for parts.checked = true; parts.next(); {
			add(f.text(parts.value))
		}
	}
	return texts
}
