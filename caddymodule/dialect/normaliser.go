package dialect

import (
	"bytes"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// finishReason is why the upstream ended an answer.
type finishReason uint8

const (
	finishNone   finishReason = iota // not ended
	finishStop                       // the model had done, or met a stop sequence
	finishTools                      // the model wants tools called
	finishLength                     // the limit of tokens is reached
	finishFilter                     // content was filtered
)

// cut reports whether what stood last in the answer may be incomplete.
func (f finishReason) cut() bool { return f == finishLength || f == finishFilter }

// normaliser reads the event stream of an upstream's chat completion and reports
// its parts, whatever the server's habits: null for absent, whole tool calls under
// one index, ids late or never, errors in a 200, the end without its reason. Only
// choice 0 is read. All its fields are final once it has ended.
type normaliser struct {
	parts     *serialiser
	whole     bool // the answer came in one piece, so that it needs no finish_reason
	thinkTags bool // the text may begin with thinking
	logprobs  bool // probabilities of the text are wanted

	upstreamStream
	finish  finishReason
	matched string // the stop sequence that ended the answer, if the upstream reports it

	think        thinkTags
	probs        []byte // probabilities of text that has not been reported
	slots        toolSlots
	tools        []toolState // by slot
	hasReasoning bool        // thinking has come
	hasText      bool        // text has come
	begun        bool        // anything of an answer has come
	chosen       bool        // a choice 0 has come
	blank        bool        // a finish_reason "" has come, which counts before a [DONE]
	noise        []byte      // the first event that was not JSON
	garbled      bool        // there was one
}

// toolState is how far the normaliser has reported a tool call.
type toolState struct {
	started bool
	held    []byte // arguments that came before the start
}

// feed takes the upstream's next bytes.
func (n *normaliser) feed(p []byte) { n.read(p, n) }

// held is how many bytes wait to be sent.
func (n *normaliser) held() int64 {
	held := n.reader.Held() + n.slots.held() + int64(cap(n.probs)+cap(n.think.held))
	for i := range n.tools {
		held += int64(cap(n.tools[i].held))
	}
	return held
}

// end ends the upstream's stream. cause is nil if it ended its message
// properly, else the error if the answer is not complete.
func (n *normaliser) end(cause *Error) {
	n.readLast(n, n.finish != finishNone)
	n.flushThinking()
	switch {
	case n.ended:
	case n.finish != finishNone:
		n.complete()
	case cause != nil:
		n.abort(cause)
	default:
		n.abort(n.broken())
	}
}

// broken is the error of an answer that ended before its end.
func (n *normaliser) broken() *Error {
	if n.garbled && !n.begun {
		return garbled(n.noise)
	}
	return StreamBroken()
}

// done implements chunkReader. Without a finish_reason the answer counts as complete
// if it cannot be half of one: thinking alone is none, and a call whose
// arguments are open may be cut.
func (n *normaliser) done() {
	n.flushThinking()
	if n.finish == finishNone && (n.blank || n.settled() || n.whole && n.chosen) {
		n.finish = finishStop
	}
	if n.finish == finishNone {
		n.abort(n.broken())
		return
	}
	n.complete()
}

// settled reports whether an answer without an end may be taken as complete.
func (n *normaliser) settled() bool {
	calls := 0
	for k := range n.tools {
		if !n.isCall(k) {
			continue
		}
		if calls++; !n.slots.slots[k].args.Complete() {
			return false
		}
	}
	return n.hasText || calls > 0
}

// complete ends the answer well.
func (n *normaliser) complete() {
	calls := n.startPending()
	switch {
	case (n.finish == finishTools || n.finish == finishStop && !n.hasText) && n.lostCall():
		n.abort(namelessCall())
	case n.finish == finishStop && calls > 0:
		n.finish = finishTools
	case n.finish == finishTools && calls == 0:
		n.finish = finishStop
	}
	n.ended = true
}

// chunk implements chunkReader.
func (n *normaliser) chunk(data []byte) {
	if n.readChunk(data); n.parts.err != nil {
		n.abort(n.parts.err)
	}
}

// readChunk acts on one chunk of the answer. Its choices are looked at only when
// all of it has been checked.
func (n *normaliser) readChunk(data []byte) {
	var choices jsonscan.Span
	m := jsonscan.Object(data)
	for m.Next() {
		if isFailure(&m) {
			n.abort(fromEvent(data))
			return
		}
		switch string(m.Name()) {
		case "choices":
			choices = m.Value
		case "usage":
			if u, ok := parseUsage(m.Raw()); ok {
				n.usage, n.gotUsage = u, true
			}
		}
	}
	if !m.Whole() {
		n.skip(data)
		return
	}
	if choices.End == 0 || data[choices.Start] != '[' {
		return
	}
	for list := jsonscan.At(data, choices.Start); list.Next(); {
		if data[list.Value.Start] == '{' {
			n.readChoice(data, list.Value.Start)
		}
	}
}

// skip ignores an event that is not a JSON object: proxies put some there. If
// nothing else comes, its text is the error.
func (n *normaliser) skip(data []byte) {
	if !n.garbled {
		n.garbled = true
		n.noise = bytes.Clone(data[:min(len(data), maxMessage)])
	}
}

// readChoice acts on the choice at data[i]: first on what it adds, then on its
// end, as both may come in one chunk.
func (n *normaliser) readChoice(data []byte, i int) {
	var reason, matched, probs []byte
	delta := -1
	for m := jsonscan.At(data, i); m.Next(); {
		raw := m.Raw()
		switch string(m.Name()) {
		case "index":
			if index, ok := jsonscan.Integer(raw); ok && index != 0 {
				return
			}
		case "delta", "message":
			if raw[0] == '{' {
				delta = m.Value.Start
			}
		case "finish_reason":
			reason = raw
		case "logprobs":
			probs = raw
		case "stop_reason", "matched_stop":
			if jsonscan.IsString(raw) { // a number is the id of a token
				matched = raw
			}
		}
	}
	n.chosen = true
	if n.logprobs {
		n.probs = appendLogprobs(n.probs, probs)
	}
	if delta >= 0 {
		n.readDelta(data, delta)
	}
	if matched != nil {
		n.matched = jsonscan.Unquote(matched)
	}
	if jsonscan.IsString(reason) && !n.ended {
		n.readReason(jsonscan.Unquote(reason))
	}
}

// readReason acts on a finish_reason; the first one counts.
func (n *normaliser) readReason(reason string) {
	if n.finish != finishNone {
		return
	}
	switch reason {
	case "":
		n.blank = true
		return
	case "error", "abort":
		n.abort(abortedUpstream(reason))
		return
	case "tool_calls", "function_call", "tool_use":
		n.finish = finishTools
	case "length", "max_tokens", "model_length":
		n.finish = finishLength
	case "content_filter":
		n.finish = finishFilter
	default: // stop, eos, end_turn, and what a server may think of
		n.finish = finishStop
	}
	n.startPending()
}
