// Package sse reads event streams.
package sse

import (
	"bytes"
	"errors"
)

// MaxEvent is the most bytes that one event may hold, in its lines together. A
// model server may put a whole tool call, or an image, into one event.
const MaxEvent = 32 << 20

// KeepBuffer is how large an emptied buffer may be to be kept for later use.
const KeepBuffer = 256 << 10

// ErrTooLarge is the reader's error for an event of more than MaxEvent
// bytes.
var ErrTooLarge = errors.New("an event of the upstream's stream is larger than 32 MiB")

// Reader cuts an event stream into events, as in WHATWG HTML §9.2: any
// of LF, CRLF and CR ends a line; a leading BOM is dropped; so are comments,
// ids and retry times. The bytes may come cut anywhere. Beyond the standard,
// an event at the end of the stream counts even without its blank line.
//
//	r.Feed(p)
//	for r.Next() { … r.Data … }
//
// Once its buffers have grown to the stream's need it allocates nothing, and
// an event that came in one piece is not even copied.
type Reader struct {
	Data []byte // of the event that Next found; valid until the next call of Next or Feed
	Name []byte // its event field, empty if there was none
	Err  error  // why Next stopped for good

	in     []byte // what Feed brought and Next has not used up
	lf     int    // index of the next LF in in, -1: none, -2: not searched yet
	line   []byte // a line that began in an earlier piece
	skipLF bool   // the last line ended in CR: a LF right behind belongs to it
	begun  bool   // the first line is through, and with it the BOM

	pending []byte // data lines of the event that is being read, joined by LF
	buf     []byte // what pending is copied to if it must outlive in
	lines   int    // data lines in pending
	owned   bool   // pending lies in buf, not in in
	field   []byte // the event field of the event that is being read
	ready   bool   // Data and Name are out: make room before going on
}

// Held is how many bytes the reader has room for.
func (r *Reader) Held() int64 { return int64(cap(r.line) + cap(r.buf)) }

// Feed brings the next piece of the stream. Next must have returned false
// before; p must not change until it does again.
func (r *Reader) Feed(p []byte) { r.in, r.lf = p, -2 }

// Next finds the next event that holds data; false means: feed more.
func (r *Reader) Next() bool {
	if r.Err != nil {
		return false
	}
	r.reset()
	for len(r.in) > 0 {
		line, ok := r.cutLine()
		if !ok {
			break
		}
		if r.takeLine(line) {
			return true
		}
		if r.Err != nil {
			return false
		}
	}
	r.keepPending()
	return false
}

// Finish takes what is left at the end of the stream: a last line without an
// end, a last event without a blank line. It reports whether Data and Name
// hold one more event.
func (r *Reader) Finish() bool {
	if r.Err != nil {
		return false
	}
	r.reset()
	if len(r.line) > 0 {
		r.takeLine(r.wholeLine(nil))
	}
	return r.Err == nil && r.dispatch()
}

// reset forgets the event that the caller has seen.
func (r *Reader) reset() {
	if !r.ready {
		return
	}
	r.ready = false
	r.Data, r.pending, r.lines, r.owned = nil, nil, 0, false
	r.Name, r.field = r.field[:0], r.field[:0]
	if cap(r.buf) > KeepBuffer {
		r.buf = nil
	}
	if cap(r.line) > KeepBuffer && len(r.line) == 0 {
		r.line = nil
	}
}

// cutLine takes the next line off r.in. Without an end of line in it, the rest
// goes to r.line and ok is false.
func (r *Reader) cutLine() (line []byte, ok bool) {
	if r.skipLF {
		r.skipLF = false
		if r.in[0] == '\n' {
			r.advance(1)
			if len(r.in) == 0 {
				return nil, false
			}
		}
	}
	if r.lf == -2 {
		r.lf = bytes.IndexByte(r.in, '\n')
	}
	end := r.lf
	if end < 0 {
		end = len(r.in)
	}
	if cr := bytes.IndexByte(r.in[:end], '\r'); cr >= 0 {
		end = cr
		r.skipLF = true
	}
	if end == len(r.in) {
		r.keepLine(r.in)
		r.in = nil
		return nil, false
	}
	line = r.in[:end]
	r.advance(end + 1)
	if len(r.line) > 0 {
		line = r.wholeLine(line)
	}
	return line, true
}

// advance drops n bytes of r.in.
func (r *Reader) advance(n int) {
	r.in = r.in[n:]
	if r.lf >= 0 {
		if r.lf -= n; r.lf < 0 {
			r.lf = -2
		}
	}
}

// keepLine keeps the start of a line for the next piece.
func (r *Reader) keepLine(p []byte) {
	if len(r.line)+len(p)+len(r.pending) > MaxEvent {
		r.Err = ErrTooLarge
		return
	}
	r.keepPending() // which may lie in the bytes of r.line
	r.line = append(r.line, p...)
}

// wholeLine joins the kept start of a line and its rest. The result is valid
// until the next keepLine.
func (r *Reader) wholeLine(rest []byte) []byte {
	line := append(r.line, rest...)
	r.line = line[:0]
	return line
}

// takeLine acts on a line; it reports whether that completed an event.
func (r *Reader) takeLine(line []byte) bool {
	if !r.begun {
		r.begun = true
		line = bytes.TrimPrefix(line, []byte("\ufeff"))
	}
	if len(line) == 0 {
		return r.dispatch()
	}
	colon := bytes.IndexByte(line, ':')
	if colon == 0 {
		return false // a comment
	}
	name, value := line, []byte(nil)
	if colon > 0 {
		name, value = line[:colon], line[colon+1:]
		if len(value) > 0 && value[0] == ' ' {
			value = value[1:]
		}
	}
	switch string(name) {
	case "data":
		r.addData(value)
	case "event":
		r.field = append(r.field[:0], value...)
	}
	return false
}

// addData adds a data line to the event.
func (r *Reader) addData(value []byte) {
	if len(r.pending)+len(value) >= MaxEvent {
		r.Err = ErrTooLarge
		return
	}
	r.lines++
	if r.lines == 1 {
		r.pending = value
		return
	}
	r.own()
	r.buf = append(append(r.buf, '\n'), value...)
	r.pending = r.buf
}

// own moves pending into the reader's own buffer.
func (r *Reader) own() {
	if !r.owned {
		r.buf = append(r.buf[:0], r.pending...)
		r.pending, r.owned = r.buf, true
	}
}

// keepPending saves what must outlive the piece that it came in.
func (r *Reader) keepPending() {
	if r.lines > 0 {
		r.own()
	}
}

// dispatch ends the event; it reports whether there is one to be seen. An
// event without a data line is none.
func (r *Reader) dispatch() bool {
	r.ready = true
	if r.lines == 0 {
		r.reset()
		return false
	}
	r.Data, r.Name = r.pending, r.field
	return true
}
