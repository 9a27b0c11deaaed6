package caddymodule

import (
	"bytes"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// codedBody is the body of an answer that takes memory to decode.
type codedBody struct{ io.ReadCloser }

func (codedBody) DecoderMemory() int64 { return 10 << 20 }

// atEnd is an empty reader that calls a function.
type atEnd func()

func (f atEnd) Read([]byte) (int, error) {
	f()
	return 0, io.EOF
}

// The decoder of a compressed answer takes memory too, of errors as well.
func TestDecodersTakeMemory(t *testing.T) {
	g := newGateway(t, 64<<20)
	for path, body := range requests {
		for _, status := range []int{http.StatusOK, http.StatusBadRequest} {
			var held int64
			g.answer = func(*http.Request, *exchange) *http.Response {
				text := completionOf("hi")
				answer := upstreamAnswer("application/json", io.MultiReader(strings.NewReader(text), atEnd(func() {
					held = max(held, g.open.memory.Stats().Held)
				})), -1)
				answer.StatusCode = status
				answer.Body = codedBody{answer.Body}
				return answer
			}
			if w := g.post(path, body); w.Code != status || held < 10<<20 {
				t.Errorf("%s: status %d, while %d bytes are held", path, w.Code, held)
			}
			g.returned(t)
			g.open.memory.Resize(8 << 20)
			isFull(t, path, g.post(path, body))
			g.open.memory.Resize(64 << 20)
		}
	}
}

// A body of a few bytes may ask for a large window, which takes memory until it
// was read.
func TestWindowsTakeMemory(t *testing.T) {
	for _, window := range []int{zstdWindow, 2 * zstdWindow} {
		var body bytes.Buffer
		w, err := zstd.NewWriter(&body, zstd.WithWindowSize(window))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("hello")); err != nil || w.Flush() != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		var held int64
		_, err = readZstd(io.MultiReader(&body, atEnd(func() {
			runtime.GC()
			runtime.ReadMemStats(&after)
		})), 32<<20, func(n int64) error { held = n; return nil })
		if err == nil {
			t.Error("a body that is cut off is read as whole")
		}
		if used := int64(after.HeapAlloc) - int64(before.HeapAlloc); used > held {
			t.Errorf("a window of %d bytes: %d bytes are used, counted as %d", window, used, held)
		}
	}
}
