package dialect

import (
	"bytes"
	"strings"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// Model servers without support for thinking leave it at the start of the text, between
// these tags.
const (
	thinkOpen  = "<think>"
	thinkClose = "</think>"
)

// thinkPlace is the position in a text that may start with thinking.
type thinkPlace uint8

const (
	thinkBefore thinkPlace = iota // white space, or a part of the opening tag
	thinkInside
	thinkBehind // white space after the closing tag
	thinkPassed // text
)

// thinkTags separates the thinking at the start of an answer from its text. It buffers only
// potential tags and the white space around them, which is dropped.
type thinkTags struct {
	place   thinkPlace
	emitted bool // thinking was reported
	held    []byte
}

// maxHeldSpace is the maximum white space that is buffered, in bytes.
const maxHeldSpace = 512

// take adds a piece of text. It passes thinking to reason and other text to text.
func (t *thinkTags) take(s string, reason, text func(s string)) {
	if t.place == thinkPassed {
		text(s)
		return
	}
	t.held = append(t.held, s...)
	for t.step(reason, text) {
	}
}

// step advances by one place. It returns false if it needs more input.
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

// pass reports the buffer as text, and treats all further input as text.
func (t *thinkTags) pass(text func(s string)) {
	held := string(t.held)
	t.place, t.held = thinkPassed, nil
	if held != "" {
		text(held)
	}
}

// emit reports thinking without leading white space.
func (t *thinkTags) emit(thinking []byte, reason func(s string)) {
	if !t.emitted {
		thinking = bytes.TrimLeft(thinking, jsonscan.Space)
	}
	if len(thinking) > 0 {
		t.emitted = true
		reason(string(thinking))
	}
}

// emitSettled reports the buffered thinking, except for a possible closing tag and the
// white space before it.
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

// tagStart returns the length of the longest suffix of text that may start the closing tag.
func tagStart(text []byte) int {
	for n := min(len(thinkClose)-1, len(text)); n > 0; n-- {
		if bytes.HasSuffix(text, []byte(thinkClose[:n])) {
			return n
		}
	}
	return 0
}

// flush reports the buffer, because no text follows directly.
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
