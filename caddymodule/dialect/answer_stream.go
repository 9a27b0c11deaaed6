package dialect

import "github.com/postern-dev/postern/caddymodule/dialect/sse"

// streamEncoder writes a streamed answer in a dialect, into a buffer that take
// empties.
type streamEncoder interface {
	encoder

	begin()                  // what opens the stream
	ping()                   // what keeps a silent stream alive
	finish(o outcome) *Error // what ends it well, unless the answer is not what was asked for
	abort(e *Error)          // what ends it after an error
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
// normaliser reports the parts of the answer, the serialiser puts them one after
// the other, and the encoder writes them.
type answerStream struct {
	n        normaliser
	blocks   serialiser
	to       streamEncoder
	estimate func() int // tokens of the prompt, if the upstream sends no usage
	begun    bool
	done     bool
}

// newAnswerStream returns a stream that has seen nothing.
func newAnswerStream(to streamEncoder, call *reply) *answerStream {
	s := &answerStream{to: to, estimate: call.estimate}
	s.n.parts, s.n.thinkTags, s.n.logprobs = &s.blocks, call.options.ThinkTags, call.logprobs
	s.blocks.to, s.blocks.calls = to, &s.n.slots
	return s
}

// Begin implements Stream.
func (s *answerStream) Begin() []byte {
	s.to.clear()
	s.open()
	return s.to.take()
}

// open writes what opens the stream, once.
func (s *answerStream) open() {
	if !s.begun {
		s.begun = true
		s.to.begin()
	}
}

// Ping implements Stream.
func (s *answerStream) Ping() []byte {
	if s.done {
		return nil
	}
	s.to.clear()
	s.open()
	s.to.ping()
	return s.to.take()
}

// Feed implements Stream.
func (s *answerStream) Feed(p []byte) []byte {
	if s.done {
		return nil
	}
	s.to.clear()
	s.open()
	s.n.feed(p)
	s.settle()
	return s.to.take()
}

// End implements Stream.
func (s *answerStream) End(cause *Error) []byte {
	if s.done {
		return nil
	}
	s.to.clear()
	s.open()
	s.n.end(cause)
	s.settle()
	return s.to.take()
}

// settle ends the client's stream if the answer has ended.
func (s *answerStream) settle() {
	err := s.Err()
	if err == nil && s.n.ended {
		s.blocks.drain(s.n.finish)
		err = s.blocks.err
	}
	if err == nil {
		if !s.n.ended {
			return
		}
		if err = s.to.finish(s.n.outcome(s.estimate)); err != nil {
			s.n.err = err
		}
	}
	if err != nil {
		s.to.abort(err)
	}
	s.done = true
}

// outcome is how the answer ended. An upstream that sends no usage leaves it
// to estimates: of the prompt by estimate, of the answer by its size.
func (n *normaliser) outcome(estimate func() int) outcome {
	o := outcome{finish: n.finish, matched: n.matched, usage: n.usage}
	if !n.gotUsage {
		o.usage = Usage{PromptTokens: int64(estimate()), CompletionTokens: tokensOf(n.size), Estimated: true}
	}
	return o
}

// Done implements Stream.
func (s *answerStream) Done() bool { return s.done }

// Finished implements Stream.
func (s *answerStream) Finished() bool { return s.n.finish != finishNone }

// Err implements Stream.
func (s *answerStream) Err() *Error {
	if s.n.err != nil {
		return s.n.err
	}
	return s.blocks.err
}

// Usage implements Stream.
func (s *answerStream) Usage() (Usage, bool) {
	if !s.n.gotUsage {
		return Usage{CompletionTokens: tokensOf(s.n.size), Estimated: true}, false
	}
	return s.n.usage, true
}

// Held implements Stream.
func (s *answerStream) Held() int64 { return s.n.held() + s.blocks.held() + s.to.held() }

// eventBuffer is where an encoder writes its events.
type eventBuffer struct{ out []byte }

// take implements streamEncoder.
func (b *eventBuffer) take() []byte { return b.out }

// clear implements streamEncoder.
func (b *eventBuffer) clear() {
	if b.out = b.out[:0]; cap(b.out) > sse.KeepBuffer {
		b.out = nil
	}
}

// held implements streamEncoder.
func (b *eventBuffer) held() int64 { return int64(cap(b.out)) }

// encodeWhole has an encoder write a whole answer of the upstream as if it had
// been streamed: what servers do in the one form they do in the other.
func encodeWhole(body []byte, to encoder, call *reply) (outcome, *Error) {
	stream, err := ReplayAsStream(body)
	if err != nil {
		return outcome{}, err
	}
	blocks := serialiser{to: to}
	n := normaliser{parts: &blocks, whole: true, thinkTags: call.options.ThinkTags, logprobs: call.logprobs}
	blocks.calls = &n.slots
	n.feed(stream)
	n.end(nil)
	if n.err == nil {
		blocks.drain(n.finish)
	}
	switch {
	case !n.chosen:
		return outcome{}, noChoices()
	case n.err != nil:
		return outcome{}, n.err
	case blocks.err != nil:
		return outcome{}, blocks.err
	}
	return n.outcome(call.estimate), nil
}
