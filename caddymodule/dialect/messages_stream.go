package dialect

import (
	"strconv"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// messagesStream writes a streamed answer in the messages dialect:
//
//	message_start ping
//	( content_block_start content_block_delta* content_block_stop )*
//	message_delta message_stop
//
// with pings anywhere behind message_start, and error as the end of all. Each
// event has its name in both places, as SDKs ignore those without an event
// line. It remembers nothing of a block but that it is open.
type messagesStream struct {
	eventBuffer
	call  *reply
	sign  signer
	kind  partKind
	index int // of the block that is open, or comes next
	calls bool

	refused bool
	refusal []byte // what was said to refuse, for stop_details
}

// held implements streamEncoder.
func (m *messagesStream) held() int64 { return m.eventBuffer.held() + int64(cap(m.refusal)) }

// begin implements streamEncoder.
func (m *messagesStream) begin() {
	b := append(m.out, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":"...)
	b = appendMessageHead(b, m.call.env.NewID("msg_"), m.call.model)
	b = append(b, "[]"...)
	b = appendMessageTail(b, messageStop{}, Usage{PromptTokens: int64(m.call.estimate())})
	m.out = append(b, "}\n\n"...)
	m.ping()
}

// ping implements streamEncoder.
func (m *messagesStream) ping() {
	m.out = append(m.out, "event: ping\ndata: {\"type\":\"ping\"}\n\n"...)
}

// wantsWhole implements encoder.
func (m *messagesStream) wantsWhole(string) bool { return false }

// open implements encoder.
func (m *messagesStream) open(kind partKind, id, name string) {
	m.kind = kind
	b := append(m.out, "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":"...)
	b = strconv.AppendInt(b, int64(m.index), 10)
	b = append(b, `,"content_block":`...)
	switch kind {
	case partReason:
		m.sign.reset()
		b = append(b, `{"type":"thinking","thinking":"","signature":""}`...)
	case partTool:
		m.calls = true
		b = appendToolUse(b, m.call.callID(id, "toolu_"), m.call.tool(name).Name, []byte("{}"))
	default:
		b = append(b, `{"type":"text","text":""}`...)
	}
	m.out = append(b, "}\n\n"...)
}

// logprobs implements encoder: the dialect has none.
func (m *messagesStream) logprobs([]byte) {}

// fill implements encoder.
func (m *messagesStream) fill(s string) {
	switch m.kind {
	case partReason:
		m.sign.add(s)
		if !m.call.omitThinking {
			m.delta("thinking_delta", "thinking", s)
		}
	case partTool:
		m.delta("input_json_delta", "partial_json", s)
	case partRefusal:
		m.refused = true
		m.refusal = append(m.refusal, s...)
		m.delta("text_delta", "text", s)
	default:
		m.delta("text_delta", "text", s)
	}
}

// delta writes one piece of the open block.
func (m *messagesStream) delta(kind, key, s string) {
	b := m.beginDelta(kind, key)
	m.out = append(jsonscan.AppendQuoted(b, s), "}}\n\n"...)
}

// beginDelta appends a delta up to its one value.
func (m *messagesStream) beginDelta(kind, key string) []byte {
	b := append(m.out, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":"...)
	b = strconv.AppendInt(b, int64(m.index), 10)
	b = append(append(b, `,"delta":{"type":"`...), kind...)
	return append(append(append(b, `","`...), key...), `":`...)
}

// close implements encoder.
func (m *messagesStream) close(bool) {
	if m.kind == partReason {
		b := m.sign.appendSignature(m.beginDelta("signature_delta", "signature"))
		m.out = append(b, "}}\n\n"...)
	}
	b := append(m.out, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":"...)
	b = strconv.AppendInt(b, int64(m.index), 10)
	m.out = append(b, "}\n\n"...)
	m.index++
}

// finish implements streamEncoder.
func (m *messagesStream) finish(o outcome) *Error {
	stop := stopOf(o, m.calls, m.refused, string(m.refusal))
	b := append(m.out, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{"...)
	b = append(stop.append(b), `},"usage":{`...)
	b = append(appendTokens(b, o.usage), `,"server_tool_use":null,`...)
	b = append(appendThinkingTokens(b, o.usage), "}}\n\n"...)
	m.out = append(b, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"...)
	return nil
}

// abort implements streamEncoder: nothing may follow, and what is open stays
// open, so that half a message does not look like a whole one.
func (m *messagesStream) abort(e *Error) {
	m.out = append(m.out, e.Event(Messages, m.call.env.RequestID)...)
}

// newMessagesStream returns the stream of an answer in the messages dialect.
func newMessagesStream(call *reply) *answerStream {
	return newAnswerStream(&messagesStream{call: call, sign: newSigner(call)}, call)
}
