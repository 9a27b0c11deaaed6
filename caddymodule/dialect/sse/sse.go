// Package sse reads event streams.
package sse

import (
	"bytes"
	"errors"
)

// MaxEvent is the maximum size of an event in bytes. A model server may send a whole tool
// call or an image in one event.
const MaxEvent = 32 << 20

// KeepBuffer is the maximum capacity of an empty buffer that is kept for reuse.
const KeepBuffer = 256 << 10

// ErrTooLarge is returned for an event of more than MaxEvent bytes.
var ErrTooLarge = errors.New("an event of the upstream's stream is larger than 32 MiB")

// Reader splits an event stream into events (WHATWG HTML §9.2). Lines end with LF, CRLF or
// CR. A leading BOM, comments, ids and retry times are dropped. The input may be split
// anywhere. Unlike in the standard, the last event needs no blank line.
//
//	r.Feed(p)
//	for r.Next() { … r.Data … }
//
// Once its buffers have grown, it does not allocate. An event that arrives in one piece is
// not copied.
type Reader struct {
	Data []byte // of the event that Next found; valid until the next call of Next or Feed
	Name []byte // the event field, may be empty
	Err  error  // the error that ended the stream

	in     []byte // unread bytes of the last Feed
	lf     int    // index of the next LF in in, -1: none, -2: not searched yet
	line   []byte // the start of a line from earlier pieces
	skipLF bool   // the last line ended with CR; skip a directly following LF
	begun  bool   // the first line, which may have a BOM, was read

	pending []byte // data lines of the current event, joined by LF
	buf     []byte // copy of pending if it must outlive in
	lines   int    // data lines in pending
	owned   bool   // pending is in buf, not in in
	field   []byte // the event field of the current event
	ready   bool   // Data and Name were returned; reset before continuing
}

// Buffered returns the size of the reader's buffers.
func (r *Reader) Buffered() int64 { return int64(cap(r.line) + cap(r.buf)) }

// Feed sets the next piece of the stream. Next must have returned false before, and p must
// not be modified until it does again.
func (r *Reader) Feed(p []byte) { r.in, r.lf = p, -2 }

// Next advances to the next event with data. It returns false if it needs more input.
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

// Finish processes the end of the stream: a last line without a line ending, and a last
// event without a blank line. It reports whether Data and Name hold another event.
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

// reset discards the event that was returned.
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

// cutLine removes the next line from r.in. If the line is incomplete, it is moved to r.line
// and ok is false.
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

// keepLine saves the start of a line for the next piece.
func (r *Reader) keepLine(p []byte) {
	if len(r.line)+len(p)+len(r.pending) > MaxEvent {
		r.Err = ErrTooLarge
		return
	}
	r.keepPending() // pending may be a slice of r.line
	r.line = append(r.line, p...)
}

// wholeLine joins the saved start of a line and its rest. The result is valid until the
// next keepLine.
func (r *Reader) wholeLine(rest []byte) []byte {
	line := append(r.line, rest...)
	r.line = line[:0]
	return line
}

// takeLine processes a line. It reports whether an event is complete.
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

// own copies pending to the reader's buffer.
func (r *Reader) own() {
	if !r.owned {
		r.buf = append(r.buf[:0], r.pending...)
		r.pending, r.owned = r.buf, true
	}
}

// keepPending saves the data that must outlive the current piece.
func (r *Reader) keepPending() {
	if r.lines > 0 {
		r.own()
	}
}

// dispatch ends the current event. It reports whether the event has a data line.
func (r *Reader) dispatch() bool {
	r.ready = true
	if r.lines == 0 {
		r.reset()
		return false
	}
	r.Data, r.Name = r.pending, r.field
	return true
}
