package dialect

import "io"

// Segments is a body in pieces; an io.ReadCloser and io.WriterTo, read once.
type Segments struct {
	parts [][]byte
	size  int64
}

// Len is the number of bytes that are left to read.
func (s *Segments) Len() int64 { return s.size }

// Read implements io.Reader.
func (s *Segments) Read(p []byte) (int, error) { return 0, io.EOF }

// WriteTo implements io.WriterTo.
func (s *Segments) WriteTo(w io.Writer) (int64, error) { return 0, nil }

// Close implements io.Closer; it does nothing.
func (s *Segments) Close() error { return nil }
