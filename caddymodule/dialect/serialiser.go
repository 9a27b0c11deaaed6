package dialect

import (
	"bytes"
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
	"github.com/postern-dev/postern/caddymodule/dialect/sse"
)

// partKind is the kind of a block of an answer.
type partKind uint8

const (
	partNone partKind = iota
	partText
	partReason
	partRefusal
	partTool
)

// serialiser makes an answer sequential, with one open block at a time. While a tool call
// is open, the content of other blocks waits. Other content is sent without buffering.
type serialiser struct {
	encoder     encoder
	calls       *toolSlots
	kind        partKind // of the open block
	call        openCall // the open block, if it is a call
	waiting     []waitingPart
	waitingSize int64  // size of waiting in bytes
	last        bool   // the open block is the answer's last one
	err         *Error // the error that ended the answer; nothing is sent after it
}

// openCall is the tool call that is open.
type openCall struct {
	k         int
	whole     bool   // arguments are sent unchecked when the call closes
	streaming bool   // arguments are being sent
	done      bool   // the object has ended
	pending   []byte // the arguments so far
	space     int    // length of the white space at the start of pending
}

// maxWaiting is the maximum number of waiting parts. Only a stream that alternates between
// text and thinking while a call is open exceeds it.
const maxWaiting = 2 * maxToolSlots

// waitingPart is a part that was received while a call was open.
type waitingPart struct {
	kind  partKind
	k     int    // of a call
	text  []byte // of another part
	probs []byte
}

// waitingPartSize is the overhead of a waiting part in bytes.
const waitingPartSize = 128

// buffered returns the number of buffered bytes.
func (s *serialiser) buffered() int64 { return int64(cap(s.call.pending)) + s.waitingSize }

// resume sends the first waiting part.
func (s *serialiser) resume() {
	w := s.waiting[0]
	s.waiting[0] = waitingPart{} // allow the texts to be freed
	s.waiting = s.waiting[1:]
	s.waitingSize -= int64(waitingPartSize + len(w.text) + len(w.probs))
	if w.kind == partTool {
		s.openCall(w.k, "")
	} else {
		s.put(w.kind, string(w.text), w.probs)
	}
}

// add sends a piece of text, thinking or a refusal, or makes it wait while a call is open.
// probs are the log probabilities of text (logprobs.go).
func (s *serialiser) add(kind partKind, t string, probs []byte) {
	if s.err != nil {
		return
	}
	if s.kind == partTool && !s.advance() {
		last := len(s.waiting) - 1
		if last < 0 || s.waiting[last].kind != kind {
			if len(s.waiting) >= maxWaiting {
				s.err = overfull("parts that alternate while a tool call is open")
				return
			}
			s.waiting = append(s.waiting, waitingPart{kind: kind})
			s.waitingSize += waitingPartSize
			last++
		}
		w := &s.waiting[last]
		s.waitingSize -= int64(len(w.probs))
		w.text, w.probs = append(w.text, t...), joinLogprobs(w.probs, probs)
		s.waitingSize += int64(len(t) + len(w.probs))
		return
	}
	s.put(kind, t, probs)
}

// put sends a piece. No call may be open.
func (s *serialiser) put(kind partKind, t string, probs []byte) {
	if s.kind != kind {
		s.closeOpen(finishNone)
		s.encoder.open(kind, "", "")
		s.kind = kind
	}
	if len(probs) > 0 {
		s.encoder.logprobs(probs)
	}
	s.encoder.fill(t)
}

// complete reports whether the arguments of the open call have ended.
func (s *serialiser) complete() bool { return s.calls.slots[s.call.k].args.reached }

// advance closes the open call if it is complete, then sends waiting parts and closes
// complete calls among them. It reports whether no call is open.
func (s *serialiser) advance() bool {
	for s.kind == partTool && s.err == nil {
		if !s.complete() {
			return false
		}
		s.closeOpen(finishNone)
		s.openWaiting()
	}
	return true
}

// openWaiting sends the waiting parts, up to and including the first call.
func (s *serialiser) openWaiting() {
	for len(s.waiting) > 0 && s.kind != partTool && s.err == nil {
		s.resume()
	}
}

// toolStart starts call k with its waiting arguments and a fragment.
func (s *serialiser) toolStart(k int, fragment string) {
	slot := &s.calls.slots[k]
	slot.state = callWaiting
	if s.err != nil {
		return
	}
	if s.kind != partTool || s.advance() {
		s.openCall(k, fragment)
		return
	}
	slot.pending = append(slot.pending, fragment...)
	at := slices.IndexFunc(s.waiting, func(w waitingPart) bool { return w.kind == partTool && w.k > k })
	if at < 0 {
		at = len(s.waiting)
	}
	s.waitingSize += waitingPartSize
	s.waiting = slices.Insert(s.waiting, at, waitingPart{kind: partTool, k: k})
}

// openCall opens call k with its waiting arguments and a fragment.
func (s *serialiser) openCall(k int, fragment string) {
	s.closeOpen(finishNone)
	slot := &s.calls.slots[k]
	slot.state = callStarted
	s.kind = partTool
	s.call = openCall{k: k, whole: s.encoder.wantsWhole(slot.name), pending: s.call.pending[:0]}
	s.encoder.open(partTool, slot.id, slot.name)
	if len(slot.pending) > 0 {
		fragment, slot.pending = string(append(slot.pending, fragment...)), nil
	}
	s.appendArguments(fragment)
}

// toolArgs adds a fragment of the arguments of call k, which has started.
func (s *serialiser) toolArgs(k int, fragment string) {
	slot := &s.calls.slots[k]
	switch {
	case s.err != nil:
	case s.kind == partTool && s.call.k == k:
		s.appendArguments(fragment)
	case slot.state == callWaiting:
		slot.pending = append(slot.pending, fragment...)
		s.advance() // the model has continued with this call
	case strings.Trim(fragment, jsonscan.Space) != "": // the call is closed: its arguments were complete
		s.err = brokenArguments()
	}
}

// appendArguments adds a fragment of the open call's arguments. Once they start with an
// opening brace, they are sent; an object that is invalid then ends the answer. Anything
// else, and an invalid object in one piece, waits until the call closes.
func (s *serialiser) appendArguments(fragment string) {
	c := &s.call
	wasDone := c.done
	c.done = s.complete()
	if fragment == "" || c.streaming && wasDone && strings.Trim(fragment, jsonscan.Space) == "" {
		return
	}
	c.pending = append(c.pending, fragment...)
	text := bytes.TrimLeft(c.pending[c.space:], jsonscan.Space)
	c.space = len(c.pending) - len(text)
	isObject := !c.done || !wasDone && jsonscan.Valid(text)
	switch {
	case c.whole:
	case c.streaming && wasDone:
		s.err = brokenArguments()
	case c.streaming:
		if s.encoder.fill(fragment); !isObject {
			s.err = brokenArguments()
		}
	case jsonscan.IsObject(text) && isObject:
		c.streaming = true
		s.encoder.fill(string(text))
	}
}

// closeOpen closes the open block, if any. finish is the finish reason if the answer ends,
// else finishNone.
func (s *serialiser) closeOpen(finish finishReason) {
	kind := s.kind
	s.kind = partNone
	switch kind {
	case partNone:
	case partTool:
		s.closeCall(finish)
		if cap(s.call.pending) > sse.KeepBuffer {
			s.call.pending = nil
		}
	default:
		s.encoder.close(finish.cut())
	}
}

// closeCall closes the open call. Arguments that the token limit truncated stay
// incomplete. Otherwise, incomplete arguments are an error.
func (s *serialiser) closeCall(finish finishReason) {
	c := &s.call
	complete := s.complete()
	switch {
	case c.whole && len(c.pending) > 0:
		s.encoder.fill(string(c.pending))
	case c.whole, c.streaming && complete:
	case c.streaming && !finish.cut():
		s.err = brokenArguments()
		return
	case !c.streaming && (complete || !finish.cut()):
		if object, _ := normalArguments(string(c.pending)); string(object) != "{}" {
			s.encoder.fill(string(object))
		}
	}
	s.encoder.close(finish.cut() && (s.last || !complete))
}

// drain closes the open block and sends the waiting parts of an answer that has ended.
// Apart from the last block, only interleaved calls can be incomplete.
func (s *serialiser) drain(finish finishReason) {
	for s.err == nil {
		s.last = len(s.waiting) == 0
		if s.last || s.kind == partTool {
			s.closeOpen(finish)
		} else {
			s.closeOpen(finishNone)
		}
		if s.last || s.err != nil {
			return
		}
		s.resume()
	}
}
