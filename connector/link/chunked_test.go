package link

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
)

func TestRequestsOfUnknownLength(t *testing.T) {
	overBoth(t, func(t *testing.T, newPair pairing) {
		var complete atomic.Int64
		p := newPair(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			if r.ContentLength != -1 {
				t.Errorf("the length is %d", r.ContentLength)
			}
			if err == nil {
				complete.Add(1)
			}
			_, _ = w.Write(b)
		}))
		for _, size := range []int{0, 1, largeChunk - 1, largeChunk, largeChunk + 1, 10 * largeChunk} {
			body := strings.Repeat("x", size)
			for _, reader := range []io.Reader{strings.NewReader(body), iotest.DataErrReader(strings.NewReader(body))} {
				r := post("")
				r.Body, r.ContentLength = io.NopCloser(reader), -1
				if _, got := p.mustDo(t, r); got != body {
					t.Errorf("%d of %d bytes arrive", len(got), size)
				}
				<-p.served
			}
		}
		for _, failure := range []error{io.ErrClosedPipe, io.ErrUnexpectedEOF} {
			r := post("")
			r.Body = io.NopCloser(io.MultiReader(strings.NewReader(strings.Repeat("x", 50_000)), iotest.ErrReader(failure)))
			r.ContentLength = -1
			if _, _, err := p.do(t, r); !errors.Is(err, failure) {
				t.Errorf("error %v, want %v", err, failure)
			}
			<-p.served
		}
		if n := complete.Load(); n != 12 {
			t.Errorf("%d bodies are complete for the handler, of 12", n)
		}
	})
}
