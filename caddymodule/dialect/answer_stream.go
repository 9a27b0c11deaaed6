package dialect

import "github.com/postern-dev/postern/caddymodule/dialect/sse"

// encoder writes an answer in a dialect, into a buffer that take empties: what
// opens the answer, its blocks, each opened, filled and closed before the next
// one, and what ends it. A quiet one writes a whole answer instead of events.
type encoder interface {
	// wantsWhole reports whether the arguments of a call of the tool are
	// wanted in one piece, as the model wrote them. Else they come as they
	// are streamed, and are checked to be the start of a JSON object.
	wantsWhole(name string) bool

	open(kind partKind, id, name string) // id and name are a tool call's
	logprobs(list []byte)                // of the text that is filled next; valid during the call
	fill(s string)                       // s is not empty
	close(cut bool)                      // cut: the answer ended before the block did

	begin()                  // what opens the answer
	ping()                   // what keeps a silent stream alive
	finish(o outcome) *Error // what ends it well, unless the answer is not what was asked for
	abort(e *Error)          // what ends a stream after an error
	take() []byte            // what was written since the last call; valid until clear
	clear()                  // forgets it
	held() int64             // bytes that are remembered, of what was written too
}

// outcome is how an answer ended.
type outcome struct {
	finish  finishReason
	matched string // the stop sequence that ended it, "" if that is not known
	usage   Usage  // the upstream's, or an estimate
}

// answerStream is a Stream in a dialect that is not the upstream's: the
// normaliser finds the parts of the answer, the serialiser puts them one after
// the other, and the encoder writes them.
type answerStream struct {
	normaliser
	blocks serialiser
	to     encoder
	call   *reply
	opened bool
}

// newAnswerStream returns a stream that has seen nothing. It is for a whole answer
// of the upstream, which is replayed, if whole is set.
func newAnswerStream(call *reply, whole bool) *answerStream {
	to := call.encoder(whole)
	s := &answerStream{to: to, call: call}
	s.parts, s.whole, s.thinkTags, s.logprobs = &s.blocks, whole, call.options.ThinkTags, call.logprobs
	s.blocks.to, s.blocks.calls = to, &s.slots
	return s
}

// encodeWhole is the client's body for a whole answer of the upstream. It is read
// as if it had been streamed: what servers do in the one form they do in the other.
func encodeWhole(body []byte, call *reply) ([]byte, Usage, *Error) {
	events, err := ReplayAsStream(body)
	if err != nil {
		return nil, Usage{}, err
	}
	s := newAnswerStream(call, true)
	s.to.begin()
	s.feed(events)
	if !s.chosen {
		return nil, Usage{}, noChoices()
	}
	o := s.conclude()
	if s.err != nil {
		return nil, Usage{}, s.err
	}
	return s.to.take(), o.usage, nil
}

// Begin implements Stream.
func (s *answerStream) Begin() []byte { return s.write(func() {}) }

// Ping implements Stream. What opens the stream does as a first ping.
func (s *answerStream) Ping() []byte {
	if !s.opened {
		return s.Begin()
	}
	return s.write(s.to.ping)
}

// Feed implements Stream.
func (s *answerStream) Feed(p []byte) []byte { return s.write(func() { s.feed(p) }) }

// End implements Stream.
func (s *answerStream) End(cause *Error) []byte { return s.write(func() { s.end(cause) }) }

// write returns what the encoder writes in a step, behind what opens the stream,
// and, if the answer ends with the step, what ends the stream.
func (s *answerStream) write(step func()) []byte {
	if s.ended {
		return nil
	}
	s.to.clear()
	if !s.opened {
		s.opened = true
		s.to.begin()
	}
	if step(); s.ended {
		if s.conclude(); s.err != nil {
			s.to.abort(s.err)
		}
	}
	return s.to.take()
}

// conclude sends on what waits of an answer that has ended, and ends it, unless
// there is an error.
func (s *answerStream) conclude() (o outcome) {
	if s.err == nil {
		s.blocks.drain(s.finish)
		s.err = s.blocks.err
	}
	if s.err == nil {
		o = outcome{finish: s.finish, matched: s.matched, usage: s.usage}
		if !s.gotUsage {
			o.usage = Usage{PromptTokens: int64(s.call.estimate()), CompletionTokens: tokensOf(s.size), Estimated: true}
		}
		s.err = s.to.finish(o)
	}
	return o
}

// Finished implements Stream.
func (s *answerStream) Finished() bool { return s.finish != finishNone }

// Held implements Stream.
func (s *answerStream) Held() int64 { return s.held() + s.blocks.held() + s.to.held() }

// eventBuffer is where an encoder writes its events.
type eventBuffer struct{ out []byte }

// take implements encoder.
func (b *eventBuffer) take() []byte { return b.out }

// clear implements encoder.
func (b *eventBuffer) clear() {
	if b.out = b.out[:0]; cap(b.out) > sse.KeepBuffer {
		b.out = nil
	}
}

// held implements encoder.
func (b *eventBuffer) held() int64 { return int64(cap(b.out)) }
