package dialect

import (
	"bytes"
	"io"
	"testing"
	"testing/iotest"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

func TestSegments(t *testing.T) {
	segments := func() *Segments {
		e := edits{
			{jsonscan.Span{Start: 2, End: 2}, []byte("-")},
			{jsonscan.Span{Start: 0, End: 1}, []byte("AA")},
			{jsonscan.Span{Start: 4, End: 6}, nil},
		}
		return e.segments([]byte("abcdef"))
	}
	const want = "AAb-cd"
	if err := iotest.TestReader(segments(), []byte(want)); err != nil {
		t.Error(err)
	}
	if got, err := io.ReadAll(iotest.OneByteReader(segments())); string(got) != want || err != nil {
		t.Errorf("byte by byte: %q, %v", got, err)
	}
	var b bytes.Buffer
	s := segments()
	if n, err := io.Copy(&b, s); b.String() != want || n != int64(len(want)) || err != nil || s.Len() != 0 {
		t.Errorf("WriteTo: %q, %d, %v, %d left", b.String(), n, err, s.Len())
	}
	s = segments()
	n, err := s.WriteTo(failing{})
	if err == nil || n+s.Len() != int64(len(want)) {
		t.Errorf("WriteTo that fails: %d written, %d left, %v", n, s.Len(), err)
	}
	if rest := bodyOf(t, s); rest != want[n:] {
		t.Errorf("after a failed WriteTo: %q", rest)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// failing is a writer that writes one byte and fails.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 1, io.ErrShortWrite }
