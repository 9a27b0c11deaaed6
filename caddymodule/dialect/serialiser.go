package dialect

import (
	"bytes"
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
	"github.com/postern-dev/postern/caddymodule/dialect/sse"
)

// partKind is what one block of an answer holds.
type partKind uint8

const (
	partNone partKind = iota
	partText
	partReason
	partRefusal
	partTool
)

// serialiser makes an answer strictly sequential: one block is open at a time,
// and what belongs to another one waits while a tool call is open. It holds
// nothing back else: it remembers O(1) of a block that is sent on.
type serialiser struct {
	to      encoder
	calls   *toolSlots
	kind    partKind // of the open block
	call    openCall // the open block, if it is a call
	waiting []waitingPart
	waits   int64  // bytes that waiting holds
	last    bool   // the open block is the answer's last one
	err     *Error // why the answer cannot go on; nothing more is sent on
}

// openCall is the tool call that is open.
type openCall struct {
	k      int
	whole  bool   // arguments go on when the call closes, unchecked
	live   bool   // arguments are being sent on
	broken bool   // they cannot become JSON
	done   bool   // the object has ended
	held   []byte // what came and was not sent on
	space  int    // how much of held is white space at its beginning
}

// maxWaiting bounds the parts that wait, which are searched for each piece of a
// call. Only a stream that changes between text and thinking again and again
// while a call is open has more of them.
const maxWaiting = 2 * maxToolSlots

// waitingPart is a part that came while a call was open.
type waitingPart struct {
	kind     partKind
	k        int // of a call
	id, name string
	text     []byte
	probs    []byte
}

// waitingPartSize is what a waiting part takes in addition to its text, in bytes.
const waitingPartSize = 128

// held is how many bytes wait to be sent on.
func (s *serialiser) held() int64 { return int64(cap(s.call.held)) + s.waits }

// resume sends on the first part that waits.
func (s *serialiser) resume() {
	w := s.waiting[0]
	s.waiting[0] = waitingPart{} // the array stays, its texts need not
	s.waiting = s.waiting[1:]
	s.waits -= int64(waitingPartSize + len(w.id) + len(w.name) + len(w.text) + len(w.probs))
	if w.kind == partTool {
		s.openCall(w.k, w.id, w.name)
		s.appendArguments(string(w.text))
	} else {
		s.put(w.kind, string(w.text), w.probs)
	}
}

// text takes a piece of text, and what was computed with it (logprobs.go).
func (s *serialiser) text(t string, probs []byte) { s.add(partText, t, probs) }

// reason takes a piece of thinking.
func (s *serialiser) reason(t string) { s.add(partReason, t, nil) }

// refusal takes a piece of a refusal.
func (s *serialiser) refusal(t string) { s.add(partRefusal, t, nil) }

// add sends a piece on, or has it wait.
func (s *serialiser) add(kind partKind, t string, probs []byte) {
	if s.err != nil {
		return
	}
	if s.kind == partTool && !s.makeRoom() {
		last := len(s.waiting) - 1
		if last < 0 || s.waiting[last].kind != kind {
			if len(s.waiting) >= maxWaiting {
				s.err = overfull("parts that alternate while a tool call is open")
				return
			}
			s.waiting = append(s.waiting, waitingPart{kind: kind})
			s.waits += waitingPartSize
			last++
		}
		w := &s.waiting[last]
		s.waits -= int64(len(w.probs))
		w.text, w.probs = append(w.text, t...), joinLogprobs(w.probs, probs)
		s.waits += int64(len(t) + len(w.probs))
		return
	}
	s.put(kind, t, probs)
}

// put sends a piece on; no call is open.
func (s *serialiser) put(kind partKind, t string, probs []byte) {
	if s.kind != kind {
		s.closeOpen(finishNone)
		s.to.open(kind, "", "")
		s.kind = kind
	}
	if len(probs) > 0 {
		s.to.logprobs(probs)
	}
	s.to.fill(t)
}

// args is all that has come of the open call's arguments.
func (s *serialiser) args() *jsonscan.Prefix { return &s.calls.slots[s.call.k].args }

// makeRoom closes the open call if it is complete, and then what waits and is
// complete too. It reports whether no call is open afterwards.
func (s *serialiser) makeRoom() bool {
	for s.kind == partTool && s.err == nil {
		if !s.args().Complete() {
			return false
		}
		s.closeOpen(finishNone)
		s.openWaiting()
	}
	return true
}

// openWaiting opens what waits, up to and including the first call.
func (s *serialiser) openWaiting() {
	for len(s.waiting) > 0 && s.kind != partTool && s.err == nil {
		s.resume()
	}
}

// toolStart takes the beginning of call k; id is "" if the upstream gave none.
func (s *serialiser) toolStart(k int, id, name string) {
	if s.err != nil {
		return
	}
	if s.kind != partTool || s.makeRoom() {
		s.openCall(k, id, name)
		return
	}
	at := slices.IndexFunc(s.waiting, func(w waitingPart) bool { return w.kind == partTool && w.k > k })
	if at < 0 {
		at = len(s.waiting)
	}
	s.waits += int64(waitingPartSize + len(id) + len(name))
	s.waiting = slices.Insert(s.waiting, at, waitingPart{kind: partTool, k: k, id: id, name: name})
}

// openCall opens a call.
func (s *serialiser) openCall(k int, id, name string) {
	s.closeOpen(finishNone)
	s.kind = partTool
	s.call = openCall{k: k, whole: s.to.wantsWhole(name), held: s.call.held[:0]}
	if cap(s.call.held) > sse.KeepBuffer {
		s.call.held = nil
	}
	s.to.open(partTool, id, name)
}

// toolArgs takes a fragment of the arguments of a call that has begun, as the model
// wrote it.
func (s *serialiser) toolArgs(k int, fragment string) {
	if s.err != nil {
		return
	}
	if s.kind == partTool && s.call.k == k {
		s.appendArguments(fragment)
		return
	}
	for i := range s.waiting {
		if w := &s.waiting[i]; w.kind == partTool && w.k == k {
			w.text = append(w.text, fragment...)
			s.waits += int64(len(fragment))
			s.makeRoom() // the model has gone on to this call
			return
		}
	}
	if strings.Trim(fragment, jsonscan.Space) != "" { // the call is closed: its arguments were complete
		s.err = brokenArguments()
	}
}

// appendArguments takes the next fragment of the open call's arguments. They are sent on
// from the brace on with which an object begins, as long as they can become
// one. All else is held until it is known what it is.
func (s *serialiser) appendArguments(fragment string) {
	c := &s.call
	wasDone, fits := c.done, !s.args().Broken()
	c.done = s.args().Complete()
	switch {
	case fragment == "", wasDone && fits: // white space behind the object
	case c.whole || c.broken:
		c.held = append(c.held, fragment...)
	case c.live && !fits:
		s.err = brokenArguments()
	case c.live:
		s.to.fill(fragment)
	case !fits:
		c.broken = true
		c.held = append(c.held, fragment...)
	default:
		c.held = append(c.held, fragment...)
		text := bytes.TrimLeft(c.held[c.space:], jsonscan.Space)
		c.space = len(c.held) - len(text)
		if len(text) > 0 && text[0] == '{' {
			c.live, c.held = true, c.held[:0]
			s.to.fill(string(text))
		}
	}
}

// closeOpen closes the open block, if there is one. finish is why the answer
// ends there, finishNone if it goes on.
func (s *serialiser) closeOpen(finish finishReason) {
	kind := s.kind
	s.kind = partNone
	switch kind {
	case partNone:
	case partTool:
		s.closeCall(finish)
	default:
		s.to.close(finish.cut())
	}
}

// closeCall closes the open call. Arguments that were cut by the limit of
// tokens stay cut; else half an object must not look like a whole one.
func (s *serialiser) closeCall(finish finishReason) {
	c := &s.call
	complete := s.args().Complete()
	switch {
	case c.whole && len(c.held) > 0:
		s.to.fill(string(c.held))
	case c.whole, c.live && complete:
	case c.live && !finish.cut():
		s.err = brokenArguments()
		return
	case !c.live && (complete || c.broken || !finish.cut()):
		if object, _ := normalArguments(string(c.held)); string(object) != "{}" {
			s.to.fill(string(object))
		}
	}
	s.to.close(finish.cut() && (s.last || !complete))
}

// drain closes what is open and sends on what waits: the answer has ended.
// Besides the last block, only calls can be incomplete: those that were
// interleaved.
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
