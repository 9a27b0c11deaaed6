package dialect

import "github.com/postern-dev/postern/caddymodule/dialect/jsonscan"

// messagesAnswer collects the content blocks of a whole answer in the messages
// dialect.
type messagesAnswer struct {
	call     *reply
	content  []byte // the blocks, each with a comma behind it
	sign     signer
	kind     partKind
	id, name string // of the open call
	text     []byte // of the open block
	calls    bool

	refused bool
	refusal []byte // what was said to refuse, for stop_details
}

// encodeMessage is the client's body for a whole answer of the upstream.
func encodeMessage(body []byte, call *reply) ([]byte, Usage, *Error) {
	m := messagesAnswer{call: call, sign: newSigner(call)}
	o, err := encodeWhole(body, &m, call)
	if err != nil {
		return nil, Usage{}, err
	}
	b := make([]byte, 0, len(m.content)+768)
	b = appendMessageHead(b, call.env.NewID("msg_"), call.model)
	b = append(b, '[')
	if n := len(m.content); n > 0 {
		b = append(b, m.content[:n-1]...)
	}
	b = append(b, ']')
	b = appendMessageTail(b, stopOf(o, m.calls, m.refused, string(m.refusal)), o.usage)
	return append(b, '\n'), o.usage, nil
}

// wantsWhole implements encoder.
func (m *messagesAnswer) wantsWhole(string) bool { return true }

// open implements encoder.
func (m *messagesAnswer) open(kind partKind, id, name string) {
	m.kind, m.id, m.name = kind, id, name
	m.text = m.text[:0]
}

// logprobs implements encoder: the dialect has none.
func (m *messagesAnswer) logprobs([]byte) {}

// fill implements encoder.
func (m *messagesAnswer) fill(s string) { m.text = append(m.text, s...) }

// close implements encoder. Half a call, cut by the limit of tokens, is
// dropped: the block can hold nothing but a whole object.
func (m *messagesAnswer) close(cut bool) {
	text := string(m.text)
	b := m.content
	switch m.kind {
	case partReason:
		m.sign.reset()
		m.sign.add(text)
		if m.call.omitThinking {
			text = ""
		}
		b = jsonscan.AppendQuoted(append(b, `{"type":"thinking","thinking":`...), text)
		b = append(m.sign.appendSignature(append(b, `,"signature":`...)), '}')
	case partTool:
		object, ok := normalArguments(text)
		if !ok && cut && !jsonscan.Valid(m.text) {
			return
		}
		m.calls = true
		b = appendToolUse(b, m.call.callID(m.id, "toolu_"), m.call.tool(m.name).Name, object)
	default:
		if m.kind == partRefusal {
			m.refused = true
			m.refusal = append(m.refusal, text...)
		}
		// No citations, not even null: the Vercel AI SDK refuses that.
		b = append(jsonscan.AppendQuoted(append(b, `{"type":"text","text":`...), text), '}')
	}
	m.content = append(b, ',')
}
