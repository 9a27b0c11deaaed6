package dialect

import (
	"io"
	"net"
	"slices"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// edit replaces a span of some bytes by other bytes.
type edit struct {
	jsonscan.Span
	text []byte
}

// edits is a list of edits that do not overlap.
type edits []edit

// maxEdits bounds the edits of one answer or event: what has more of them
// repeats a key, or has more tool calls than anybody makes.
const maxEdits = 4096

// add adds an edit; edits mostly come in order of position.
func (e *edits) add(start, end int, text []byte) {
	*e = append(*e, edit{jsonscan.Span{Start: start, End: end}, text})
}

// sort puts the edits in order of position.
func (e edits) sort() {
	byStart := func(a, b edit) int { return a.Start - b.Start }
	if !slices.IsSortedFunc(e, byStart) {
		slices.SortStableFunc(e, byStart)
	}
}

// appendTo appends data, edited, to b.
func (e edits) appendTo(b, data []byte) []byte {
	e.sort()
	from := 0
	for i := range e {
		b = append(b, data[from:e[i].Start]...)
		b = append(b, e[i].text...)
		from = e[i].End
	}
	return append(b, data[from:]...)
}

// segments is data, edited, without a copy of it.
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

// Segments is a body in pieces, so that a large one need not be copied to be
// changed. It is an io.ReadCloser and io.WriterTo that is read once; readers
// must not change the bytes. It stays readable after Close, and so can
// be read late by a transport that net/http has already given up on.
type Segments struct{ parts net.Buffers }

// add appends a piece.
func (s *Segments) add(p []byte) {
	if len(p) > 0 {
		s.parts = append(s.parts, p)
	}
}

// Len is the number of bytes that are left to read: at first the
// Content-Length.
func (s *Segments) Len() (size int64) {
	for _, p := range s.parts {
		size += int64(len(p))
	}
	return size
}

// Read implements io.Reader.
func (s *Segments) Read(p []byte) (int, error) { return s.parts.Read(p) }

// WriteTo implements io.WriterTo: one Write for each piece.
func (s *Segments) WriteTo(w io.Writer) (int64, error) { return s.parts.WriteTo(w) }

// Close implements io.Closer; there is nothing to close.
func (s *Segments) Close() error { return nil }

// Interface guards.
var (
	_ io.ReadCloser = (*Segments)(nil)
	_ io.WriterTo   = (*Segments)(nil)
)
