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

// thinkState is the position in a text that may start with thinking.
type thinkState uint8

const (
	thinkBefore thinkState = iota // white space, or a part of the opening tag
	thinkInside
	thinkAfter  // white space after the closing tag
	thinkPassed // text
)

// thinkTags separates the thinking at the start of an answer from its text. It buffers only
// potential tags and the white space around them, which is dropped.
type thinkTags struct {
	state   thinkState
	emitted bool // thinking was reported
	pending []byte
}

// maxPendingSpace is the maximum white space that is buffered, in bytes.
const maxPendingSpace = 512

// take adds a piece of text. It passes thinking to reason and other text to text.
func (t *thinkTags) take(s string, reason, text func(s string)) {
	if t.state == thinkPassed {
		text(s)
		return
	}
	t.pending = append(t.pending, s...)
	for t.step(reason, text) {
	}
}

// step advances by one state. It returns false if it needs more input.
func (t *thinkTags) step(reason, text func(s string)) bool {
	trimmed := bytes.TrimLeft(t.pending, jsonscan.Space)
	switch t.state {
	case thinkBefore:
		switch {
		case bytes.HasPrefix(trimmed, []byte(thinkOpen)):
			t.state, t.pending = thinkInside, trimmed[len(thinkOpen):]
			return true
		case strings.HasPrefix(thinkOpen, string(trimmed)) && len(t.pending) <= maxPendingSpace:
			return false
		}
		t.pass(text)
	case thinkInside:
		if i := bytes.Index(t.pending, []byte(thinkClose)); i >= 0 {
			t.emit(bytes.TrimRight(t.pending[:i], jsonscan.Space), reason)
			t.state, t.pending = thinkAfter, t.pending[i+len(thinkClose):]
			return true
		}
		t.emitSettled(reason)
	case thinkAfter:
		if t.pending = trimmed; len(trimmed) > 0 {
			t.pass(text)
		}
	}
	return false
}

// pass reports the buffer as text, and treats all further input as text.
func (t *thinkTags) pass(text func(s string)) {
	pending := string(t.pending)
	t.state, t.pending = thinkPassed, nil
	if pending != "" {
		text(pending)
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
	end := len(t.pending) - tagStart(t.pending)
	settled := len(bytes.TrimRight(t.pending[:end], jsonscan.Space))
	if end-settled > maxPendingSpace {
		settled = end
	}
	if settled == 0 {
		return
	}
	t.emit(t.pending[:settled], reason)
	t.pending = append(t.pending[:0], t.pending[settled:]...)
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
	switch t.state {
	case thinkBefore:
		if len(t.pending) > 0 {
			t.pass(text)
		}
	case thinkInside:
		t.emit(bytes.TrimRight(t.pending, jsonscan.Space), reason)
		t.pending = t.pending[:0]
	}
}
