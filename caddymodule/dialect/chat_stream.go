package dialect

import (
	"bytes"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// chatPing is a comment that keeps a silent chat stream alive.
var chatPing = []byte(": ping\n\n")

// doneEvent ends a chat stream that is complete.
const doneEvent = "data: [DONE]\n\n"

// ChatStreamOptions are the values of a request that a ChatStream uses.
type ChatStreamOptions struct {
	Model        string      // the public name that the client requested
	IncludeUsage bool        // the client wants usage in its stream; otherwise, it is removed
	Choices      int         // number of choices of the answer, 0 if unknown
	Info         *AnswerInfo // nil: not wanted
}

// ChatStream converts an upstream's event stream to the client's in the chat dialect.
// The JSON of each event is spliced, not decoded. It inserts the public model name,
// removes `"error":null`, which the Go SDK treats as a failure, and removes usage
// unless the client requested it. A complete stream, with a finish_reason for each
// choice, ends with [DONE]. Any other stream ends with an error event.
//
// Upstream comments are dropped, because a stalled model server may continue to send
// them. The gateway sends its own pings.
//
// The input may be split anywhere. Once its buffers have grown, it does not allocate
// memory for an event.
type ChatStream struct {
	o      ChatStreamOptions
	model  []byte // quoted
	repair bool   // the model server is Ollama, which numbers all tool calls 0

	upstreamStream
	eventBuffer
	edits    edits
	scratch  []byte // texts of edits
	choices  []choiceState
	tools    toolSlots
	envelope []byte // id and created, as members, of the first chunk
	events   int
}

// NewChatStream returns a new stream.
func NewChatStream(o ChatStreamOptions) *ChatStream {
	s := &ChatStream{o: o, model: jsonscan.AppendQuoted(nil, o.Model)}
	s.info = o.Info
	return s
}

// Feed implements Stream.
func (s *ChatStream) Feed(p []byte) []byte {
	return s.write(func() { s.read(p, s) })
}

// End implements Stream. If the answer is complete, cause is not sent.
func (s *ChatStream) End(cause *Error) []byte {
	return s.write(func() {
		s.readLast(s, s.Finished() || cause != nil)
		switch {
		case s.ended:
		case s.Finished(), cause == nil && s.complete():
			s.ended = true
		case cause != nil:
			s.abort(cause)
		default:
			s.abort(StreamBroken())
		}
	})
}

// write runs step and returns its output, followed by the end of the stream if the
// answer has ended.
func (s *ChatStream) write(step func()) []byte {
	if s.ended {
		return nil
	}
	s.clear()
	step()
	switch {
	case s.err != nil:
		s.out = append(append(append(s.out, "data: "...), s.err.Body(Chat, "")...), '\n')
	case s.ended:
		s.out = append(s.out, doneEvent...)
	}
	return s.out
}

// Finished reports whether every requested choice has its finish_reason. Only usage and
// [DONE] may follow. The caller should not wait long for them.
func (s *ChatStream) Finished() bool {
	return s.complete() && s.o.Choices > 0 && len(s.choices) >= s.o.Choices
}

// Buffered implements Stream.
func (s *ChatStream) Buffered() int64 {
	return s.reader.Buffered() + s.tools.buffered() + int64(cap(s.out)+cap(s.scratch)+cap(s.envelope))
}

// done implements chunkReader.
func (s *ChatStream) done() {
	if s.finishChoices(); s.complete() {
		s.ended = true
	} else {
		s.abort(StreamBroken())
	}
}

// appendEvent appends an event with one JSON text. It replaces newlines between tokens
// by spaces, because some clients read only one line of data.
func appendEvent(b []byte, text func([]byte) []byte) []byte {
	b = append(b, "data: "...)
	from := len(b)
	b = text(b)
	for i := from; i < len(b); i++ {
		k := bytes.IndexByte(b[i:], '\n')
		if k < 0 {
			break
		}
		i += k
		b[i] = ' '
	}
	return append(b, "\n\n"...)
}
