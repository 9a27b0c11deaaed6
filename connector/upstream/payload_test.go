package upstream

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/postern-dev/postern/connector/memory"
)

func TestPayloadReadsEverySize(t *testing.T) {
	for _, size := range []int{0, 1, 4<<10 - 1, 4 << 10, 4<<10 + 1, 300_000, 5 << 20} {
		want := bytes.Repeat([]byte("abcdefg"), size/7+1)[:size]
		for _, length := range []int64{int64(size), -1, 0, int64(size) / 2} { // wrong lengths, too
			p, err := readPayload(nil, iotest.HalfReader(bytes.NewReader(want)), length)
			if err != nil {
				t.Fatalf("%d bytes, announced %d: %v", size, length, err)
			}
			if !bytes.Equal(p.data, want) {
				t.Errorf("%d bytes, announced %d: read %d", size, length, len(p.data))
			}
			p.release()
		}
	}
}

func TestPayloadReadError(t *testing.T) {
	failure := errors.New("reset")
	if _, err := readPayload(nil, io.MultiReader(strings.NewReader("half"), iotest.ErrReader(failure)),
		8); err != failure {
		t.Errorf("got %v", err)
	}
}

// TestPayloadBudget: a body reserves the memory of its buffer until its release. Without
// memory, the body is not read.
func TestPayloadBudget(t *testing.T) {
	budget := memory.NewBudget(5 << 20)

	first, err := readPayload(budget, strings.NewReader(strings.Repeat("x", 3<<20)), 3<<20)
	if err != nil {
		t.Fatal(err)
	}
	if held := budget.Stats().Reserved; held != 3<<20+1 {
		t.Errorf("%d bytes are held, want those of the buffer", held)
	}
	for _, length := range []int64{3 << 20, -1} {
		body := strings.NewReader(strings.Repeat("x", 3<<20))
		if _, err := readPayload(budget, body, length); !errors.Is(err, memory.ErrExceeded) {
			t.Errorf("announced %d: %v", length, err)
		}
		if length > 0 && body.Len() != 3<<20 {
			t.Error("a body was read without memory for it")
		}
	}
	first.release()
	if held := budget.Stats().Reserved; held != 0 {
		t.Errorf("%d bytes are held in the end", held)
	}
}
