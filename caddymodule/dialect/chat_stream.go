package dialect

import (
	"bytes"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// ChatPing keeps a silent chat stream alive: a comment.
var ChatPing = []byte(": ping\n\n")

// doneEvent ends a chat stream that is complete.
const doneEvent = "data: [DONE]\n\n"

// ChatStreamOptions are a ChatStream's options.
type ChatStreamOptions struct {
	// The public model name, for the client to see.
	Model string

	// The client asked for usage. Else usage is taken off the stream.
	IncludeUsage bool

	// How many choices the client asked for; 0 if that is not known.
	Choices int

	// Whether to number tool calls again where the upstream gives several the
	// same index: compat.RepairOn, RepairOff, or "" for Ollama alone, which
	// does that and can be recognised.
	RepairToolIndex string
}

// ChatStream turns an upstream's event stream into the client's, in the chat
// dialect: each event's JSON is spliced, not decoded. It puts the public model
// name in, takes `"error":null` out (the Go SDK takes the mere key for a
// failure) and usage too unless the client asked for it, and sees to it that
// the stream ends well only if it was complete: with [DONE] after a
// finish_reason for each choice that was begun, else with an error event.
//
// Upstream comments are dropped. A model server that has come to a standstill
// may go on sending them; the gateway has pings of its own.
//
// It is fed bytes as they come, cut anywhere, and allocates nothing for an
// event once its buffers have grown.
type ChatStream struct {
	o      ChatStreamOptions
	model  []byte // quoted
	repair bool

	upstreamStream
	eventBuffer
	edits    edits
	scratch  []byte // texts of edits
	choices  []choiceState
	tools    toolSlots
	envelope []byte // id and created, as members, of the first chunk
	events   int
}

// NewChatStream returns a stream that has seen nothing.
func NewChatStream(o ChatStreamOptions) *ChatStream {
	return &ChatStream{o: o, model: jsonscan.AppendQuoted(nil, o.Model), repair: o.RepairToolIndex == compat.RepairOn}
}

// Feed takes the upstream's next bytes and returns what to send to the client
// at once: whole events, possibly none. They are valid until the next call.
func (s *ChatStream) Feed(p []byte) []byte {
	return s.write(func() { s.read(p, s) })
}

// End ends the upstream's stream and returns the last bytes for the client.
// cause is nil if the upstream ended its message properly, else what to send
// the client if its answer is not complete.
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

// write returns what a step adds to the client's stream, and what ends it if the
// answer ends with the step.
func (s *ChatStream) write(step func()) []byte {
	if s.ended {
		return nil
	}
	s.clear()
	step()
	switch {
	case s.err != nil:
		s.out = append(s.out, s.err.Event(Chat, "")...)
	case s.ended:
		s.out = append(s.out, doneEvent...)
	}
	return s.out
}

// Finished reports that every choice that the client asked for has its
// finish_reason. Only usage and [DONE] may follow: after 5 s without them, end
// the stream as if they had come.
func (s *ChatStream) Finished() bool {
	return s.complete() && s.o.Choices > 0 && len(s.choices) >= s.o.Choices
}

// Held implements Stream.
func (s *ChatStream) Held() int64 {
	return s.reader.Held() + s.tools.held() + int64(cap(s.out)+cap(s.scratch)+cap(s.envelope))
}

// done implements chunkReader.
func (s *ChatStream) done() {
	if s.settle(); s.complete() {
		s.ended = true
	} else {
		s.abort(StreamBroken())
	}
}

// appendEvent appends an event that holds one JSON text. A line end in JSON is
// white space; as a blank it leaves the event on one line, for the clients
// that read only one.
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
