package dialect

import (
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// conversation collects a client's history, in whatever order its dialect
// has it, and writes it as the messages of a chat request:
//
//   - one system message at most, and only in front; system text that comes
//     later is folded into the turn that it follows, since most chat templates
//     refuse it in the middle, and moving it to the front would change the
//     head of the prompt at every turn and so spoil the upstream's cache,
//     unless keepSystem is set: the template takes it where it came;
//   - behind an assistant message with calls come its results, one message
//     each, in the order of the calls, and nothing between;
//   - what a longer history contains of earlier turns is the same, byte for byte.
type conversation struct {
	system []string
	// keepSystem has system text that comes later stay where it came, as a
	// message of its own, for chat templates that take it there.
	keepSystem bool
	turns      []turn
	calls      map[string]callPlace // by the client's id of the call
}

// turn is a message of the user or the system, or one of the assistant with the
// results of its calls.
type turn struct {
	assistant       bool
	system          bool
	parts           []contentPart // of the user or the system
	folded          []string      // system text that came behind the turn
	*assistantParts               // of the assistant
}

// assistantParts is the assistant's part of a turn, and the results of its calls.
type assistantParts struct {
	text      []string
	reasoning []string
	calls     []toolCall
	answered  bool // a call has a result
}

// callPlace is where a call stands.
type callPlace struct{ turn, call int }

// toolCall is a call and its result.
type toolCall struct {
	id, name  string
	arguments string // JSON text
	result    string
	images    []contentPart // of the result
	answered  bool
}

// contentPart is text, or a part that goes up as it is: an image or audio.
type contentPart struct {
	text string
	raw  []byte // JSON; nil: it is text
	mark string // what stands for it in text; "": it is an image
}

// marker is what stands for a part where only text can be.
func (p contentPart) marker() string {
	if p.mark == "" {
		return "[image]"
	}
	return p.mark
}

// isEmpty reports whether there is nothing in a part.
func (p contentPart) isEmpty() bool { return p.raw == nil && p.text == "" }

// addSystem adds text of the system or the developer.
func (c *conversation) addSystem(text string) {
	if text == "" {
		return
	}
	if len(c.turns) == 0 {
		c.system = append(c.system, text)
		return
	}
	if c.keepSystem {
		c.turns = append(c.turns, turn{system: true, parts: []contentPart{{text: text}}})
		return
	}
	last := &c.turns[len(c.turns)-1]
	last.folded = append(last.folded, text)
}

// addUser adds a message of the user. It takes the parts over.
func (c *conversation) addUser(parts []contentPart) {
	kept := parts[:0]
	for _, p := range parts {
		if !p.isEmpty() {
			kept = append(kept, p)
		}
	}
	if len(kept) > 0 {
		c.turns = append(c.turns, turn{parts: kept})
	}
}

// ensureMessage makes sure that there is a message: model servers refuse a
// request without any.
func (c *conversation) ensureMessage() {
	if len(c.system) == 0 && len(c.turns) == 0 {
		c.turns = append(c.turns, turn{parts: []contentPart{{}}})
	}
}

// assistantTurn is the turn that the assistant's next words belong to: the
// last one, unless that is the user's, or its calls have results already.
func (c *conversation) assistantTurn() *turn {
	if n := len(c.turns); n > 0 && c.turns[n-1].assistant && !c.turns[n-1].answered && len(c.turns[n-1].folded) == 0 {
		return &c.turns[n-1]
	}
	c.turns = append(c.turns, turn{assistant: true, assistantParts: new(assistantParts)})
	return &c.turns[len(c.turns)-1]
}

// addText adds text of the assistant.
func (c *conversation) addText(text string) {
	if text != "" {
		t := c.assistantTurn()
		t.text = append(t.text, text)
	}
}

// addReasoning adds what the assistant thought.
func (c *conversation) addReasoning(text string) {
	if text != "" {
		t := c.assistantTurn()
		t.reasoning = append(t.reasoning, text)
	}
}

// addCall adds a call of the assistant. arguments is JSON text.
func (c *conversation) addCall(id, name, arguments string) {
	t := c.assistantTurn()
	t.calls = append(t.calls, toolCall{id: id, name: name, arguments: arguments})
	if c.calls == nil {
		c.calls = make(map[string]callPlace)
	}
	c.calls[id] = callPlace{len(c.turns) - 1, len(t.calls) - 1}
}

// addResult adds the result of a call. One whose call is not there, or has a
// result already, becomes text of the user.
func (c *conversation) addResult(id, text string, images []contentPart) {
	if at, ok := c.calls[id]; ok {
		t := &c.turns[at.turn]
		if call := &t.calls[at.call]; !call.answered {
			call.result, call.images, call.answered = text, images, true
			t.answered = true
			return
		}
	}
	c.addUser(append([]contentPart{{text: "[tool result " + id + "]\n" + text}}, images...))
}

// appendMessages appends the conversation as a JSON array of chat messages.
func (c *conversation) appendMessages(b []byte) []byte {
	w := messageWriter{b: append(b, '[')}
	if len(c.system) > 0 {
		w.system(strings.Join(c.system, "\n\n"))
	}
	var carried []contentPart // for the next message of the user
	for i := range c.turns {
		t := &c.turns[i]
		if t.assistant || t.system {
			w.user(carried)
			carried = nil
		}
		switch {
		case t.assistant:
			carried = w.assistant(t)
		case t.system:
			w.system(t.parts[0].text)
		default:
			w.user(withReminders(concat(carried, t.parts), t.folded))
			carried = nil
		}
	}
	w.user(carried)
	return append(w.b, ']')
}

// concat is the parts of one message after those of another. Folded system text
// stands before the user's own, apart from it.
func concat(first, second []contentPart) []contentPart {
	n := len(first)
	if n == 0 {
		return second
	}
	if len(second) == 0 || first[n-1].raw != nil || second[0].raw != nil {
		return append(first, second...)
	}
	joined := append([]contentPart{}, first...)
	joined[n-1].text += "\n\n" + second[0].text
	return append(joined, second[1:]...)
}

// withReminders is the parts of a message with the system text that was folded into
// it, which belongs to the last part if that is text.
func withReminders(parts []contentPart, folded []string) []contentPart {
	last := len(parts) - 1
	switch {
	case len(folded) == 0:
	case last >= 0 && parts[last].raw == nil:
		parts[last].text += "\n\n" + reminders(folded)
	default:
		parts = append(parts, contentPart{text: reminders(folded)})
	}
	return parts
}

// reminders is system text that was folded into a turn.
func reminders(folded []string) string {
	return "<system-reminder>\n" + strings.Join(folded, "\n</system-reminder>\n\n<system-reminder>\n") + "\n</system-reminder>"
}

// messageWriter writes chat messages.
type messageWriter struct{ b []byte }

// begin opens a message.
func (w *messageWriter) begin(role string) {
	if w.b[len(w.b)-1] != '[' {
		w.b = append(w.b, ',')
	}
	w.b = append(append(append(w.b, `{"role":"`...), role...), '"')
}

// system writes a message of the system.
func (w *messageWriter) system(text string) {
	w.begin("system")
	w.b = append(jsonscan.AppendQuoted(append(w.b, `,"content":`...), text), '}')
}

// user writes a message of the user, unless it is empty: its content is a string,
// or an array if there is more than text in it, as some upstreams make a message
// of each part.
func (w *messageWriter) user(parts []contentPart) {
	if len(parts) == 0 {
		return
	}
	w.begin("user")
	begin, textBegin, textEnd, between, end := `,"content":"`, "", "", `\n`, `"}`
	if slices.ContainsFunc(parts, func(p contentPart) bool { return p.raw != nil }) {
		begin, textBegin, textEnd, between, end = `,"content":[`, `{"type":"text","text":"`, `"}`, ",", "]}"
	}
	w.b = append(w.b, begin...)
	for i, p := range parts {
		if i > 0 {
			w.b = append(w.b, between...)
		}
		if p.raw != nil {
			w.b = append(w.b, p.raw...)
		} else {
			w.b = append(jsonscan.AppendEscaped(append(w.b, textBegin...), p.text), textEnd...)
		}
	}
	w.b = append(w.b, end...)
}

// assistant writes a turn of the assistant and the results of its calls, and
// returns what is left for the next message of the user: images of results,
// which only a user's message can hold, and system text that found no place.
func (w *messageWriter) assistant(t *turn) (rest []contentPart) {
	w.begin("assistant")
	w.b = jsonscan.AppendQuoted(append(w.b, `,"content":`...), strings.Join(t.text, "\n"))
	if len(t.reasoning) > 0 {
		// Model servers differ in the name that they read.
		text := strings.Join(t.reasoning, "\n")
		w.b = jsonscan.AppendQuoted(append(w.b, `,"reasoning_content":`...), text)
		w.b = jsonscan.AppendQuoted(append(w.b, `,"reasoning":`...), text)
	}
	w.calls(t.calls)
	w.b = append(w.b, '}')
	last := -1 // the last call that has a result
	for i := range t.calls {
		if t.calls[i].answered {
			last = i
		}
	}
	for i := range t.calls {
		call := &t.calls[i]
		if !call.answered {
			continue
		}
		if i == last && len(t.folded) > 0 {
			call.result += "\n\n" + reminders(t.folded)
		}
		w.begin("tool")
		w.b = jsonscan.AppendQuoted(append(w.b, `,"tool_call_id":`...), call.id)
		w.b = append(jsonscan.AppendQuoted(append(w.b, `,"content":`...), call.result), '}')
		rest = append(rest, call.images...)
	}
	if last < 0 && len(t.folded) > 0 {
		rest = append(rest, contentPart{text: reminders(t.folded)})
	}
	return rest
}

// calls writes the tool_calls of a message.
func (w *messageWriter) calls(calls []toolCall) {
	if len(calls) == 0 {
		return
	}
	w.b = append(w.b, `,"tool_calls":[`...)
	for i := range calls {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.b = jsonscan.AppendQuoted(append(w.b, `{"id":`...), calls[i].id)
		w.b = jsonscan.AppendQuoted(append(w.b, `,"type":"function","function":{"name":`...), calls[i].name)
		w.b = jsonscan.AppendQuoted(append(w.b, `,"arguments":`...), calls[i].arguments)
		w.b = append(w.b, "}}"...)
	}
	w.b = append(w.b, ']')
}
