package dialect

import (
	"bytes"
	"io"
	"strings"
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

// Data with many edits is copied once.
func TestAppendEdited(t *testing.T) {
	data, e := []byte(strings.Repeat("abcdefgh", 1000)), edits{}
	for at := 0; at < len(data); at += 8 {
		e.add(at, at+1, []byte("AA"))
	}
	want := strings.Repeat("AAbcdefgh", 1000)
	if n := testing.AllocsPerRun(10, func() {
		if got := e.appendTo(nil, data); string(got) != want {
			t.Errorf("got %.100q…", got)
		}
	}); n > 2 { // the race detector adds one
		t.Errorf("%v allocations", n)
	}
}

// failing is a writer that writes one byte and fails.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 1, io.ErrShortWrite }
