package dialect

import (
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// messagesEncoder writes an answer in the messages dialect: the events of a stream,
//
//	message_start ping
//	( content_block_start content_block_delta* content_block_stop )*
//	message_delta message_stop
//
// with pings anywhere after message_start, and error as the last event of a failed
// answer. A quiet encoder writes a message. Each event has its name in both the event
// line, which SDKs require, and the data. The content of blocks is not buffered.
type messagesEncoder struct {
	eventBuffer
	call      *reply
	quiet     bool
	sign      signer
	kind      partKind
	id, name  string // of the open call
	index     int64  // of the open or next block
	text      []byte // of the open block, if quiet
	calls     bool
	hidden    int       // bytes of omitted thinking that no event has counted
	countedAt time.Time // when the last such event was sent, or the block opened

	refused bool
	refusal []byte // the refusal's text, for stop_details
}

// newMessagesEncoder returns a new encoder.
func newMessagesEncoder(call *reply, quiet bool) encoder {
	return &messagesEncoder{call: call, quiet: quiet, sign: newSigner(call)}
}

// buffered implements encoder.
func (m *messagesEncoder) buffered() int64 {
	n := m.eventBuffer.buffered() + int64(cap(m.refusal))
	if g := m.call.safeguard; g != nil {
		n += int64(min(g.size, maxJudged))
	}
	return n
}

// begin implements encoder.
func (m *messagesEncoder) begin() {
	if !m.quiet {
		m.out = append(m.out, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":"...)
	}
	m.out = appendMessageHead(m.out, m.call.env.NewID("msg_"), m.call.model)
	if m.quiet {
		return
	}
	m.out = append(m.appendTail(m.out, "", "", Usage{PromptTokens: int64(m.call.estimate())}), "}\n\n"...)
	m.ping()
}

// ping implements encoder.
func (m *messagesEncoder) ping() {
	m.out = append(m.out, "event: ping\ndata: {\"type\":\"ping\"}\n\n"...)
}

// blockEvent starts an event about the open block.
func (m *messagesEncoder) blockEvent(name string) {
	m.out = jsonscan.Appendf(m.out, "event: %s\ndata: {\"type\":\"%s\",\"index\":%d", name, name, m.index)
}

// endEvent ends an event.
func (m *messagesEncoder) endEvent() { m.out = append(m.out, "}\n\n"...) }

// wantsWhole implements encoder.
func (m *messagesEncoder) wantsWhole(string) bool { return m.quiet }

// open implements encoder.
func (m *messagesEncoder) open(kind partKind, id, name string) {
	m.kind, m.id, m.name = kind, id, name
	if kind == partReason {
		m.sign.reset()
		m.hidden, m.countedAt = 0, m.call.env.Now()
	}
	if m.quiet {
		m.text = m.text[:0]
		return
	}
	m.blockEvent("content_block_start")
	m.out = append(m.out, `,"content_block":`...)
	m.appendBlock("", []byte("{}"))
	m.endEvent()
}

// appendBlock appends the open block with its text or input, which are empty in a
// stream.
func (m *messagesEncoder) appendBlock(text string, input []byte) {
	switch m.kind {
	case partReason:
		m.out = jsonscan.Appendf(m.out, `{"type":"thinking","thinking":%q,"signature":`, text)
		if m.quiet {
			m.out = m.sign.appendSignature(m.out)
		} else {
			m.out = append(m.out, `""`...)
		}
		m.out = append(m.out, '}')
	case partTool:
		m.calls = true
		id, tool := m.call.callID(m.id, "toolu_"), m.call.tool(m.name)
		m.out = jsonscan.Appendf(m.out, `{"type":"tool_use","id":%q,"name":%q,"input":%s,"caller":{"type":"direct"}`,
			id, tool.Name, input)
		if tool.Namespace != "" {
			m.out = jsonscan.Appendf(m.out, `,"toolset_name":%q`, tool.Namespace)
		}
		m.out = append(m.out, '}')
		if g := m.call.safeguard; g != nil {
			if g.open(id, memberName(tool.Namespace, tool.Name)); m.quiet { // the name is as in the history
				g.fill(string(input))
			}
		}
	default:
		// No citations, not even null, which the Vercel AI SDK rejects.
		m.out = jsonscan.Appendf(m.out, `{"type":"text","text":%q}`, text)
	}
}

// logprobs implements encoder. The dialect has none.
func (m *messagesEncoder) logprobs([]byte) {}

// fill implements encoder.
func (m *messagesEncoder) fill(s string) {
	delta, key, thought := "text_delta", "text", int64(0) // tokens
	switch m.kind {
	case partReason:
		m.sign.add(s)
		if m.call.omitThinking {
			m.hidden += len(s)
			now := m.call.env.Now()
			if thought = int64(m.hidden / BytesPerToken); thought == 0 || m.quiet || !m.call.countThought ||
				now.Sub(m.countedAt) < time.Second {
				return
			}
			m.hidden, m.countedAt, s = m.hidden%BytesPerToken, now, ""
		}
		delta, key = "thinking_delta", "thinking"
	case partTool:
		delta, key = "input_json_delta", "partial_json"
	case partRefusal:
		m.refused = true
		m.refusal = append(m.refusal, s...)
	}
	if m.quiet {
		m.text = append(m.text, s...)
		return
	}
	if g := m.call.safeguard; g != nil && m.kind == partTool {
		g.fill(s)
	}
	m.blockEvent("content_block_delta")
	m.out = jsonscan.Appendf(m.out, `,"delta":{"type":"%s","%s":%q`, delta, key, s)
	if m.call.countThought && m.kind == partReason {
		m.out = jsonscan.Appendf(m.out, `,"estimated_tokens":%n`, thought)
	}
	m.out = append(m.out, '}')
	m.endEvent()
}

// close implements encoder.
func (m *messagesEncoder) close(cut bool) {
	if m.quiet {
		m.closeWhole(cut)
		return
	}
	if m.kind == partReason {
		m.blockEvent("content_block_delta")
		m.out = append(m.out, `,"delta":{"type":"signature_delta","signature":`...)
		m.out = append(m.sign.appendSignature(m.out), '}')
		m.endEvent()
	}
	m.blockEvent("content_block_stop")
	m.endEvent()
	m.index++
}

// closeWhole writes the open block of a message. An incomplete tool call is dropped,
// because the block requires a complete object.
func (m *messagesEncoder) closeWhole(cut bool) {
	var input []byte
	if m.kind == partTool {
		ok := false
		if input, ok = normalArguments(string(m.text)); !ok && cut && !jsonscan.Valid(m.text) {
			return
		}
	}
	if m.index > 0 {
		m.out = append(m.out, ',')
	}
	m.appendBlock(string(m.text), input)
	m.index++
}

// finish implements encoder.
func (m *messagesEncoder) finish(o outcome) *Error {
	reason := m.stopReason(o)
	if m.quiet {
		m.out = append(m.appendTail(m.out, reason, o.matched, o.usage), '\n')
		return nil
	}
	b := append(m.out, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{"...)
	b = append(m.appendStop(b, reason, o.matched), `},"usage":`...)
	b = appendMessageUsage(b, o.usage, `"server_tool_use":null`, "")
	m.out = append(b, "}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"...)
	return nil
}

// abort implements encoder. The open block stays open, so that the message does not look
// complete.
func (m *messagesEncoder) abort(e *Error) {
	m.out = append(append(m.out, "event: error\ndata: "...), e.Body(Messages, m.call.env.RequestID)...)
	m.out = append(m.out, '\n')
}
