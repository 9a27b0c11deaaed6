package dialect

import (
	"io"
	"net"
	"slices"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// edit replaces a span of a byte slice.
type edit struct {
	jsonscan.Span
	text []byte
}

// edits is a list of non-overlapping edits.
type edits []edit

// maxEdits is the maximum number of edits of an answer or event. Only duplicate keys or an
// excessive number of tool calls exceed it.
const maxEdits = 4096

// add adds an edit. Edits are usually added in order of position.
func (e *edits) add(start, end int, text []byte) {
	*e = append(*e, edit{jsonscan.Span{Start: start, End: end}, text})
}

// sort sorts the edits by position.
func (e edits) sort() {
	byStart := func(a, b edit) int { return a.Start - b.Start }
	if !slices.IsSortedFunc(e, byStart) {
		slices.SortStableFunc(e, byStart)
	}
}

// appendTo appends the edited data to b.
func (e edits) appendTo(b, data []byte) []byte {
	e.sort()
	from, size := 0, len(data)
	for i := range e {
		size += len(e[i].text) - (e[i].End - e[i].Start)
	}
	b = slices.Grow(b, size)
	for i := range e {
		b = append(b, data[from:e[i].Start]...)
		b = append(b, e[i].text...)
		from = e[i].End
	}
	return append(b, data[from:]...)
}

// segments returns the edited data without copying it.
func (e edits) segments(data []byte) *Segments {
	e.sort()
	s := &Segments{parts: make([][]byte, 0, 2*len(e)+1)}
	from := 0
	for i := range e {
		s.add(data[from:e[i].Start])
		s.add(e[i].text)
		from = e[i].End
	}
	s.add(data[from:])
	return s
}

// Segments is a body in pieces, which avoids copying a large body to change it. It can be
// read once. Readers must not modify the bytes. It remains readable after Close, because
// a transport may still read it after net/http has abandoned the request.
type Segments struct{ parts net.Buffers }

// add appends a piece.
func (s *Segments) add(p []byte) {
	if len(p) > 0 {
		s.parts = append(s.parts, p)
	}
}

// Len returns the number of unread bytes, initially the Content-Length.
func (s *Segments) Len() (size int64) {
	for _, p := range s.parts {
		size += int64(len(p))
	}
	return size
}

// Read implements io.Reader.
func (s *Segments) Read(p []byte) (int, error) { return s.parts.Read(p) }

// WriteTo implements io.WriterTo with one Write for each piece.
func (s *Segments) WriteTo(w io.Writer) (int64, error) { return s.parts.WriteTo(w) }

// Close implements io.Closer. It does nothing.
func (s *Segments) Close() error { return nil }

// Interface guards.
var (
	_ io.ReadCloser = (*Segments)(nil)
	_ io.WriterTo   = (*Segments)(nil)
)
