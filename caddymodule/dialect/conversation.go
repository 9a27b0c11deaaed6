package dialect

import (
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// conversation collects a client's history in the order of its dialect, and encodes it
// as the messages of a chat request:
//
//   - There is at most one system message, and it comes first. Later system text
//     is folded into the preceding message, because most chat templates reject it
//     there. Moving it to the front would invalidate the upstream's prompt cache.
//   - An assistant message with calls is directly followed by the results, one
//     message each, in the order of the calls.
//   - A longer history repeats the encoding of its earlier messages byte for byte.
type conversation struct {
	system   []string
	messages []message
	calls    map[string]callIndex // by the client's id of the call
}

// message is a user message, or an assistant message with the results of its calls.
type message struct {
	assistant       bool
	parts           []contentPart // of a user message
	folded          []string      // system text that followed the message
	*assistantParts               // of an assistant message
}

// assistantParts holds an assistant message and the results of its calls.
type assistantParts struct {
	text      []string
	reasoning []string
	calls     []toolCall
	answered  bool // a call has a result
}

// callIndex is the position of a call.
type callIndex struct{ message, call int }

// toolCall is a call and its result.
type toolCall struct {
	id, name  string
	arguments string // JSON text
	result    string
	images    []contentPart // of the result
	answered  bool
}

// contentPart is text, or a part that is passed through, such as an image or audio.
type contentPart struct {
	text  string
	raw   []byte // JSON; nil for text
	mark  string // placeholder in text; "" for an image
	typed bool   // by the user, not by the client
}

// marker returns the placeholder of a part where only text is allowed.
func (p contentPart) marker() string {
	if p.mark == "" {
		return "[image]"
	}
	return p.mark
}

// isEmpty reports whether a part has no content.
func (p contentPart) isEmpty() bool { return p.raw == nil && p.text == "" }

// addSystem adds system or developer text.
func (c *conversation) addSystem(text string) {
	if text == "" {
		return
	}
	if len(c.messages) == 0 {
		c.system = append(c.system, text)
		return
	}
	last := &c.messages[len(c.messages)-1]
	last.folded = append(last.folded, text)
}

// addUser adds a user message. It takes ownership of parts.
func (c *conversation) addUser(parts []contentPart) {
	kept := parts[:0]
	for _, p := range parts {
		if !p.isEmpty() {
			kept = append(kept, p)
		}
	}
	if len(kept) > 0 {
		c.messages = append(c.messages, message{parts: kept})
	}
}

// ensureMessage adds an empty message if there is none, because model servers reject a
// request without messages.
func (c *conversation) ensureMessage() {
	if len(c.system) == 0 && len(c.messages) == 0 {
		c.messages = append(c.messages, message{parts: []contentPart{{}}})
	}
}

// assistantMessage returns the message for the assistant's next content: the last one if it
// is the assistant's and its calls have no results yet, else a new one.
func (c *conversation) assistantMessage() *message {
	if n := len(c.messages); n > 0 {
		if last := &c.messages[n-1]; last.assistant && !last.answered && len(last.folded) == 0 {
			return last
		}
	}
	c.messages = append(c.messages, message{assistant: true, assistantParts: new(assistantParts)})
	return &c.messages[len(c.messages)-1]
}

// addText adds assistant text.
func (c *conversation) addText(text string) {
	if text != "" {
		m := c.assistantMessage()
		m.text = append(m.text, text)
	}
}

// addReasoning adds the assistant's reasoning.
func (c *conversation) addReasoning(text string) {
	if text != "" {
		m := c.assistantMessage()
		m.reasoning = append(m.reasoning, text)
	}
}

// addCall adds a tool call of the assistant. arguments is JSON.
func (c *conversation) addCall(id, name, arguments string) {
	m := c.assistantMessage()
	m.calls = append(m.calls, toolCall{id: id, name: name, arguments: arguments})
	if c.calls == nil {
		c.calls = make(map[string]callIndex)
	}
	c.calls[id] = callIndex{len(c.messages) - 1, len(m.calls) - 1}
}

// addResult adds the result of a call. If the call is missing or already has a result,
// it becomes user text.
func (c *conversation) addResult(id, text string, images []contentPart) {
	if at, ok := c.calls[id]; ok {
		m := &c.messages[at.message]
		if call := &m.calls[at.call]; !call.answered {
			call.result, call.images, call.answered = text, images, true
			m.answered = true
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
	var carried []contentPart // for the next user message
	for i := range c.messages {
		m := &c.messages[i]
		if m.assistant {
			w.user(carried)
			carried = w.assistant(m)
		} else {
			w.user(withReminders(concat(carried, m.parts), m.folded))
			carried = nil
		}
	}
	w.user(carried)
	return append(w.b, ']')
}

// concat concatenates the parts of two messages. Adjacent texts are merged, separated
// by a blank line.
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

// withReminders adds folded system text to the parts of a message. It is appended to
// the last part if that is text.
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

// reminders returns the system text that was folded into a message.
func reminders(folded []string) string {
	return "<system-reminder>\n" + strings.Join(folded, "\n</system-reminder>\n\n<system-reminder>\n") +
		"\n</system-reminder>"
}

// messageWriter encodes chat messages.
type messageWriter struct{ b []byte }

// begin starts a message.
func (w *messageWriter) begin(role string) {
	if w.b[len(w.b)-1] != '[' {
		w.b = append(w.b, ',')
	}
	w.b = jsonscan.Appendf(w.b, `{"role":"%s"`, role)
}

// system writes a system message.
func (w *messageWriter) system(text string) {
	w.begin("system")
	w.b = jsonscan.Appendf(w.b, `,"content":%q}`, text)
}

// user writes a user message unless it is empty. Its content is a string if it has only
// text, because some upstreams convert each part of an array to a message.
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

// assistant writes an assistant's message with the results of its calls. It returns the
// parts for the next user message: images of results, which only a user message can
// contain, and system text that could not be folded.
func (w *messageWriter) assistant(m *message) (rest []contentPart) {
	w.begin("assistant")
	w.b = jsonscan.Appendf(w.b, `,"content":%q`, strings.Join(m.text, "\n"))
	if len(m.reasoning) > 0 { // model servers use different names
		text := strings.Join(m.reasoning, "\n")
		w.b = jsonscan.Appendf(w.b, `,"reasoning_content":%q,"reasoning":%q`, text, text)
	}
	w.calls(m.calls)
	w.b = append(w.b, '}')
	last := -1 // the last call that has a result
	for i := range m.calls {
		if m.calls[i].answered {
			last = i
		}
	}
	for i := range m.calls {
		call := &m.calls[i]
		if !call.answered {
			continue
		}
		if i == last && len(m.folded) > 0 {
			call.result += "\n\n" + reminders(m.folded)
		}
		w.begin("tool")
		w.b = jsonscan.Appendf(w.b, `,"tool_call_id":%q,"content":%q}`, call.id, call.result)
		rest = append(rest, call.images...)
	}
	if last < 0 && len(m.folded) > 0 {
		rest = append(rest, contentPart{text: reminders(m.folded)})
	}
	return rest
}

// calls writes the tool_calls of a message.
func (w *messageWriter) calls(calls []toolCall) {
	if len(calls) == 0 {
		return
	}
	w.b = append(w.b, `,"tool_calls":[`...)
	for i, c := range calls {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.b = jsonscan.Appendf(w.b, `{"id":%q,"type":"function","function":{"name":%q,"arguments":%q}}`, c.id, c.name,
			c.arguments)
	}
	w.b = append(w.b, ']')
}
