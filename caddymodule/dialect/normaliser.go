package dialect

import (
	"bytes"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// finishReason is why the upstream ended an answer.
type finishReason uint8

const (
	finishNone   finishReason = iota // not ended
	finishStop                       // the model was done, or a stop sequence matched
	finishTools                      // the model called tools
	finishLength                     // the token limit was reached
	finishFilter                     // content was filtered
)

// cut reports whether the last part of the answer may be incomplete.
func (f finishReason) cut() bool { return f == finishLength || f == finishFilter }

// normaliser reads the event stream of an upstream's chat completion and reports its
// parts. It tolerates the quirks of servers: null for absent, whole tool calls with the
// same index, late or missing ids, errors with status 200, a missing finish_reason. It
// reads choice 0 only. Its fields are final once it has ended.
type normaliser struct {
	parts     *serialiser
	whole     bool // the answer was not streamed, and needs no finish_reason
	thinkTags bool // the text may start with thinking
	logprobs  bool // log probabilities of the text were requested

	upstreamStream
	finish  finishReason
	matched string // the stop sequence that ended the answer, if the upstream reports it

	half         halfPair // of the text or thinking before
	halfOf       partKind
	think        thinkTags
	probs        []byte // log probabilities of text that was not reported yet
	slots        toolSlots
	hasReasoning bool   // thinking was received
	hasText      bool   // text was received
	begun        bool   // any part of the answer was received
	hasChoice    bool   // choice 0 was received
	emptyReason  bool   // a finish_reason "" was received, which is valid before [DONE]
	noise        []byte // the first event that was not valid JSON
	garbled      bool   // there was such an event
}

// feed consumes the upstream's next bytes.
func (n *normaliser) feed(p []byte) { n.read(p, n) }

// buffered returns the number of buffered bytes.
func (n *normaliser) buffered() int64 {
	return n.reader.Buffered() + n.slots.buffered() + int64(cap(n.probs)+cap(n.think.pending))
}

// end ends the upstream's stream. cause is nil for a clean end, else the error to report
// if the answer is incomplete.
func (n *normaliser) end(cause *Error) {
	n.readLast(n, n.finish != finishNone)
	n.flushText()
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

// broken returns the error of an incomplete answer.
func (n *normaliser) broken() *Error {
	if n.garbled && !n.begun {
		return garbled(n.noise)
	}
	return StreamBroken()
}

// done implements chunkReader. Without a finish_reason, the answer is complete unless it
// may have been truncated: if it has only thinking, or a call with open arguments.
func (n *normaliser) done() {
	n.flushText()
	if n.finish == finishNone && (n.emptyReason || n.seemsComplete() || n.whole && n.hasChoice) {
		n.finish = finishStop
	}
	if n.finish == finishNone {
		n.abort(n.broken())
		return
	}
	n.complete()
}

// seemsComplete reports whether an answer without a finish_reason is considered complete.
func (n *normaliser) seemsComplete() bool {
	calls := 0
	for k := range n.slots.slots {
		slot := &n.slots.slots[k]
		if slot.name == "" {
			continue
		}
		if calls++; !slot.args.reached {
			return false
		}
	}
	return n.hasText || calls > 0
}

// complete ends a complete answer.
func (n *normaliser) complete() {
	calls := n.startPending()
	n.flushArguments()
	switch {
	case (n.whole || n.finish == finishTools || n.finish == finishStop && !n.hasText) && n.lostCall():
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

// readChunk processes a chunk of the answer. It reads the choices only after it has
// checked the whole chunk.
func (n *normaliser) readChunk(data []byte) {
	var choices jsonscan.Span
	m := jsonscan.Object(data)
	for m.Next() {
		if isFailure(&m) {
			n.abort(fromEvent(data))
			return
		}
		switch string(m.Name()) {
		case "id":
			n.info.noteID(m.Raw())
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
	for list := jsonscan.MembersAt(data, choices.Start); list.Next(); {
		if data[list.Value.Start] != '{' {
			continue
		}
		position := int64(0) // the index, if it is missing
		if n.whole {
			position = int64(list.Index)
		}
		n.readChoice(data, list.Value.Start, position)
	}
}

// skip ignores an event that is not a JSON object, which some proxies insert. If nothing
// else is received, its text becomes the error.
func (n *normaliser) skip(data []byte) {
	if !n.garbled {
		n.garbled = true
		n.noise = bytes.Clone(data[:min(len(data), maxMessage)])
	}
}

// readChoice processes the choice at data[i]: first its content, then its end, as both
// may be in one chunk.
func (n *normaliser) readChoice(data []byte, i int, index int64) {
	var reason, matched, probs []byte
	delta := -1
	for m := jsonscan.MembersAt(data, i); m.Next(); {
		raw := m.Raw()
		switch string(m.Name()) {
		case "index":
			if given, ok := jsonscan.Integer(raw); ok {
				index = given
			}
		case "delta", "message":
			if jsonscan.IsObject(raw) {
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
	n.info.noteReason(index, reason)
	if index != 0 {
		return
	}
	n.hasChoice = true
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

// readReason processes a finish_reason. Only the first one is used.
func (n *normaliser) readReason(reason string) {
	if n.finish != finishNone {
		return
	}
	switch reason {
	case "":
		n.emptyReason = true
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
	default: // stop, eos, end_turn and unknown reasons
		n.finish = finishStop
	}
	n.startPending()
}
