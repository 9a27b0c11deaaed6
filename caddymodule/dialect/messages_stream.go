package dialect

import (
	"strconv"

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
	call     *reply
	quiet    bool
	sign     signer
	kind     partKind
	id, name string // of the open call
	index    int    // of the open or next block
	text     []byte // of the open block, if quiet
	calls    bool

	refused bool
	refusal []byte // the refusal's text, for stop_details
}

// held implements encoder.
func (m *messagesEncoder) held() int64 { return m.eventBuffer.held() + int64(cap(m.refusal)) }

// begin implements encoder.
func (m *messagesEncoder) begin() {
	if !m.quiet {
		m.event("message_start")
		m.out = append(m.out, `,"message":`...)
	}
	m.out = appendMessageHead(m.out, m.call.env.NewID("msg_"), m.call.model)
	if m.quiet {
		return
	}
	m.out = append(m.out, ']')
	m.out = appendMessageTail(m.out, messageStop{}, Usage{PromptTokens: int64(m.call.estimate())})
	m.endEvent()
	m.ping()
}

// ping implements encoder.
func (m *messagesEncoder) ping() {
	m.event("ping")
	m.endEvent()
}

// event starts an event.
func (m *messagesEncoder) event(name string) {
	b := append(append(m.out, "event: "...), name...)
	m.out = append(append(append(b, "\ndata: {\"type\":\""...), name...), '"')
}

// blockEvent starts an event about the open block.
func (m *messagesEncoder) blockEvent(name string) {
	m.event(name)
	m.out = strconv.AppendInt(append(m.out, `,"index":`...), int64(m.index), 10)
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
		m.out = jsonscan.AppendQuoted(append(m.out, `{"type":"thinking","thinking":`...), text)
		m.out = append(m.out, `,"signature":`...)
		if m.quiet {
			m.out = m.sign.appendSignature(m.out)
		} else {
			m.out = append(m.out, `""`...)
		}
		m.out = append(m.out, '}')
	case partTool:
		m.calls = true
		m.out = appendToolUse(m.out, m.call.callID(m.id, "toolu_"), m.call.tool(m.name).Name, input)
	default:
		// No citations, not even null, which the Vercel AI SDK rejects.
		m.out = append(jsonscan.AppendQuoted(append(m.out, `{"type":"text","text":`...), text), '}')
	}
}

// logprobs implements encoder. The dialect has none.
func (m *messagesEncoder) logprobs([]byte) {}

// fill implements encoder.
func (m *messagesEncoder) fill(s string) {
	delta, key := "text_delta", "text"
	switch m.kind {
	case partReason:
		m.sign.add(s)
		if m.call.omitThinking {
			return
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
	m.beginDelta(delta, key)
	m.out = append(jsonscan.AppendQuoted(m.out, s), '}')
	m.endEvent()
}

// beginDelta starts the event for a piece of the open block, up to its value.
func (m *messagesEncoder) beginDelta(kind, key string) {
	m.blockEvent("content_block_delta")
	b := append(append(m.out, `,"delta":{"type":"`...), kind...)
	m.out = append(append(append(b, `","`...), key...), `":`...)
}

// close implements encoder.
func (m *messagesEncoder) close(cut bool) {
	if m.quiet {
		m.closeWhole(cut)
		return
	}
	if m.kind == partReason {
		m.beginDelta("signature_delta", "signature")
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
	stop := stopOf(o, m.calls, m.refused, string(m.refusal))
	if m.quiet {
		m.out = append(appendMessageTail(append(m.out, ']'), stop, o.usage), '\n')
		return nil
	}
	m.event("message_delta")
	b := append(stop.append(append(m.out, `,"delta":{`...)), `},"usage":{`...)
	b = append(appendTokens(b, o.usage), `,"server_tool_use":null,`...)
	m.out = append(appendThinkingTokens(b, o.usage), '}')
	m.endEvent()
	m.event("message_stop")
	m.endEvent()
	return nil
}

// abort implements encoder. The open block stays open, so that the message does not look
// complete.
func (m *messagesEncoder) abort(e *Error) {
	m.out = append(m.out, e.Event(Messages, m.call.env.RequestID)...)
}
