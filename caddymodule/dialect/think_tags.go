package dialect

import (
	"bytes"
	"strings"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// Model servers that know nothing of thinking leave it at the beginning of the
// text, between these tags.
const (
	thinkOpen  = "<think>"
	thinkClose = "</think>"
)

// thinkPlace is where a text that may begin with thinking has come to.
type thinkPlace uint8

const (
	thinkBefore thinkPlace = iota // white space, or a part of the first tag
	thinkInside
	thinkBehind // white space behind the last tag
	thinkPassed // all that comes is text
)

// thinkTags takes the thinking off the front of an answer's text. It holds back
// only what may become a tag, and white space that may stand next to one, which
// belongs to neither thinking nor text.
type thinkTags struct {
	place   thinkPlace
	emitted bool // thinking was reported
	held    []byte
}

// maxHeldSpace is how much white space is held back, in bytes: more is no
// layout.
const maxHeldSpace = 512

// take adds a piece of text and reports what has become known.
func (t *thinkTags) take(s string, reason, text func(s string)) {
	if t.place == thinkPassed {
		text(s)
		return
	}
	t.held = append(t.held, s...)
	for t.step(reason, text) {
	}
}

// step goes on by one place; false when more must come for that.
func (t *thinkTags) step(reason, text func(s string)) bool {
	trimmed := bytes.TrimLeft(t.held, jsonscan.Space)
	switch t.place {
	case thinkBefore:
		switch {
		case bytes.HasPrefix(trimmed, []byte(thinkOpen)):
			t.place, t.held = thinkInside, trimmed[len(thinkOpen):]
			return true
		case strings.HasPrefix(thinkOpen, string(trimmed)) && len(t.held) <= maxHeldSpace:
			return false
		}
		t.pass(text)
	case thinkInside:
		if i := bytes.Index(t.held, []byte(thinkClose)); i >= 0 {
			t.emit(bytes.TrimRight(t.held[:i], jsonscan.Space), reason)
			t.place, t.held = thinkBehind, t.held[i+len(thinkClose):]
			return true
		}
		t.emitSettled(reason)
	case thinkBehind:
		if t.held = trimmed; len(trimmed) > 0 {
			t.pass(text)
		}
	}
	return false
}

// pass reports what is held, and that all that comes is text.
func (t *thinkTags) pass(text func(s string)) {
	held := string(t.held)
	t.place, t.held = thinkPassed, nil
	if held != "" {
		text(held)
	}
}

// emit reports thinking; white space in front of all of it is none.
func (t *thinkTags) emit(thinking []byte, reason func(s string)) {
	if !t.emitted {
		thinking = bytes.TrimLeft(thinking, jsonscan.Space)
	}
	if len(thinking) > 0 {
		t.emitted = true
		reason(string(thinking))
	}
}

// emitSettled reports the thinking that is held but for what may belong to its
// end.
func (t *thinkTags) emitSettled(reason func(s string)) {
	end := len(t.held) - tagStart(t.held)
	settled := len(bytes.TrimRight(t.held[:end], jsonscan.Space))
	if end-settled > maxHeldSpace {
		settled = end
	}
	if settled == 0 {
		return
	}
	t.emit(t.held[:settled], reason)
	t.held = append(t.held[:0], t.held[settled:]...)
}

// tagStart is how much of the end of a text may be the beginning of the tag
// that ends thinking.
func tagStart(text []byte) int {
	for n := min(len(thinkClose)-1, len(text)); n > 0; n-- {
		if bytes.HasSuffix(text, []byte(thinkClose[:n])) {
			return n
		}
	}
	return 0
}

// flush reports what is held: something else comes than text, or nothing more.
func (t *thinkTags) flush(reason, text func(s string)) {
	switch t.place {
	case thinkBefore:
		if len(t.held) > 0 {
			t.pass(text)
		}
	case thinkInside:
		t.emit(bytes.TrimRight(t.held, jsonscan.Space), reason)
		t.held = t.held[:0]
	}
}
