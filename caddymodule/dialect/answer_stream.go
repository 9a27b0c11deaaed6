package dialect

import "github.com/postern-dev/postern/caddymodule/dialect/sse"

// encoder encodes an answer in a dialect into a buffer. Only one block is open at a
// time. A quiet encoder writes a whole answer instead of events.
type encoder interface {
	// wantsWhole reports whether the encoder needs the arguments of a call of
	// the tool in one piece, unchecked. Otherwise they are streamed, after a
	// check that they start a JSON object.
	wantsWhole(name string) bool

	open(kind partKind, id, name string) // id and name are those of a tool call
	logprobs(list []byte)                // for the next fill; list is valid during the call only
	fill(s string)                       // s must not be empty
	close(cut bool)                      // cut: the answer ended before the block did

	begin()                  // opens the answer
	ping()                   // keeps a silent stream alive
	finish(o outcome) *Error // ends a complete answer; fails if the answer is unusable
	abort(e *Error)          // ends a stream after an error
	take() []byte            // returns the output since the last clear; valid until the next one
	clear()                  // discards the output
	buffered() int64         // returns the number of buffered bytes, including the output
}

// outcome is how an answer ended.
type outcome struct {
	finish  finishReason
	matched string // the stop sequence that ended it, "" if that is not known
	usage   Usage  // the upstream's, or an estimate
}

// answerStream is a Stream in another dialect than the upstream's. The normaliser
// finds the parts of the answer, the serialiser orders them, and the encoder encodes
// them.
type answerStream struct {
	normaliser
	blocks  serialiser
	encoder encoder
	call    *reply
	opened  bool
}

// newAnswerStream returns a new stream. If whole is set, its only chunk is a
// whole answer.
func newAnswerStream(call *reply, whole bool) *answerStream {
	enc := call.encoder(whole)
	s := &answerStream{encoder: enc, call: call}
	s.parts, s.whole, s.thinkTags, s.logprobs = &s.blocks, whole, call.env.Options.ThinkTags, call.logprobs
	s.blocks.encoder, s.blocks.calls = enc, &s.slots
	s.info = call.env.Info
	return s
}

// Continue makes s, which is a new stream, continue the stream of another call with the same body if that
// has sent its opening events, and nothing of an answer.
func Continue(s, begun Stream) {
	next, _ := s.(*answerStream)
	if first, ok := begun.(*answerStream); ok && next != nil && first.opened {
		*first.call = *next.call // for the encoder, which has sent the events
		next.opened, next.encoder, next.blocks.encoder = true, first.encoder, first.encoder
	}
}

// encodeWhole returns the client's body for a whole answer of the upstream. The answer
// is processed as a single chunk, because servers have the same quirks in both forms.
func encodeWhole(body []byte, call *reply) ([]byte, Usage, *Error) {
	s := newAnswerStream(call, true)
	s.encoder.begin()
	s.chunk(body)
	s.pieces = 0 // those of a whole answer are not tokens
	switch {
	case s.garbled:
		return nil, Usage{}, garbled(body)
	case s.err == nil && !s.hasChoice:
		return nil, Usage{}, noChoices()
	case !s.ended:
		s.done()
	}
	o := s.conclude()
	if s.err != nil {
		return nil, Usage{}, s.err
	}
	return s.encoder.take(), o.usage, nil
}

// Ping implements Stream. The first ping opens the stream.
func (s *answerStream) Ping() []byte {
	if !s.opened {
		return s.write(func() {})
	}
	return s.write(s.encoder.ping)
}

// Feed implements Stream.
func (s *answerStream) Feed(p []byte) []byte { return s.write(func() { s.feed(p) }) }

// End implements Stream.
func (s *answerStream) End(cause *Error) []byte {
	return s.write(func() {
		if s.end(cause); s.call.safeguard.Waits() && cause != nil {
			s.call.safeguard.waiting, s.err = nil, cause
			s.encoder.abort(cause)
		}
	})
}

// write runs step and returns the encoder's output. It opens the stream before the
// first step, and ends it after the last one. While the end waits for verdicts, there can be pings or an error.
func (s *answerStream) write(step func()) []byte {
	waits := s.call.safeguard.Waits()
	if s.ended && !waits {
		return nil
	}
	s.encoder.clear()
	if !s.opened {
		s.opened = true
		s.encoder.begin()
	}
	if step(); s.ended && !waits {
		if s.conclude(); s.err != nil {
			s.encoder.abort(s.err)
		}
	}
	return s.encoder.take()
}

// conclude sends the buffered parts of an answer that has ended, and finishes it
// unless it failed, or waits for verdicts.
func (s *answerStream) conclude() (o outcome) {
	if s.err == nil {
		s.blocks.drain(s.finish)
		s.err = s.blocks.err
	}
	if s.err == nil {
		o = outcome{finish: s.finish, matched: s.matched, usage: s.usage}
		if !s.gotUsage {
			o.usage, _ = s.Usage()
			o.usage.PromptTokens = int64(s.call.estimate())
		}
		if g := s.call.safeguard; g != nil && g.size > 0 {
			g.waiting, g.outcome = s, o
			return o
		}
		s.err = s.encoder.finish(o)
	}
	return o
}

// Finished implements Stream.
func (s *answerStream) Finished() bool { return s.finish != finishNone }

// Buffered implements Stream.
func (s *answerStream) Buffered() int64 {
	return s.buffered() + s.blocks.buffered() + s.encoder.buffered()
}

// eventBuffer is the output buffer of an encoder.
type eventBuffer struct{ out []byte }

// take implements encoder.
func (b *eventBuffer) take() []byte { return b.out }

// clear implements encoder.
func (b *eventBuffer) clear() {
	if b.out = b.out[:0]; cap(b.out) > sse.KeepBuffer {
		b.out = nil
	}
}

// buffered implements encoder.
func (b *eventBuffer) buffered() int64 { return int64(cap(b.out)) }
