package tunnel

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// compressor is what all compressing writers can do.
type compressor interface {
	io.WriteCloser
	Flush() error
}

// compressors make a body of each coding that is undone.
var compressors = map[string]func(io.Writer) compressor{
	"gzip":    func(w io.Writer) compressor { return gzip.NewWriter(w) },
	" X-GZIP": func(w io.Writer) compressor { return gzip.NewWriter(w) },
	"zstd": func(w io.Writer) compressor {
		z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
		if err != nil {
			panic(err)
		}
		return z
	},
}

// compressed is an answer in a coding.
func compressed(coding string, body io.ReadCloser) *http.Response {
	return &http.Response{
		Header: http.Header{"Content-Encoding": {coding}, "Content-Length": {"5"}}, Body: body,
		ContentLength: 5,
	}
}

// An answer that was compressed unasked reads as if it were not: what is flushed
// comes at once.
func TestDecompress(t *testing.T) {
	for coding, compress := range compressors {
		t.Run(coding, func(t *testing.T) {
			source, sink := io.Pipe()
			answer := compressed(coding, source)
			if err := decompress(answer); err != nil || answer.ContentLength != -1 || len(answer.Header) != 0 {
				t.Fatalf("%v, %d, %v", err, answer.ContentLength, answer.Header)
			}
			w := compress(sink)
			events := []string{"data: {\"a\":1}\n\n", "data: " + strings.Repeat("long ", 20<<10) + "\n\n", "data: [DONE]\n\n"}
			for _, event := range events {
				sent := make(chan error, 1)
				go func() {
					_, err := io.WriteString(w, event)
					sent <- errors.Join(err, w.Flush())
				}()
				got := make([]byte, len(event))
				if _, err := io.ReadFull(answer.Body, got); err != nil || string(got) != event {
					t.Fatalf("%v, got %.80q", err, got)
				}
				if err := <-sent; err != nil {
					t.Fatal(err)
				}
			}
			go func() { _ = errors.Join(w.Close(), sink.Close()) }()
			if rest, err := io.ReadAll(io.LimitReader(answer.Body, 1)); err != nil || len(rest) != 0 {
				t.Errorf("the end: %v, %q", err, rest)
			}
			if err := answer.Body.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// What is not undone is an error that says so, never the raw bytes.
func TestDecompressNot(t *testing.T) {
	for _, coding := range []string{"br", "deflate"} {
		closed := false
		body := &closing{Reader: strings.NewReader("raw"), closed: &closed}
		if err := decompress(compressed(coding, body)); !errors.Is(err, ErrCompressed) ||
			!strings.Contains(err.Error(), strconv.Quote(coding)) || !closed {
			t.Errorf("%s: %v, closed %v", coding, err, closed)
		}
	}
	for coding := range compressors {
		answer := compressed(coding, io.NopCloser(strings.NewReader(`{"error":"not compressed at all"}`)))
		if err := decompress(answer); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(answer.Body); !errors.Is(err, ErrCompressed) {
			t.Errorf("%s that is none: %v", coding, err)
		}
	}
	for _, coding := range []string{"", "identity"} {
		answer := compressed(coding, io.NopCloser(strings.NewReader("plain")))
		if err := decompress(answer); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(answer.Body); err != nil || string(got) != "plain" || answer.ContentLength != 5 {
			t.Errorf("%q: %v, %q", coding, err, got)
		}
	}
}

// An answer that breaks off stays one that broke off.
func TestDecompressBroken(t *testing.T) {
	lost := errors.New("the tunnel was lost")
	for coding, compress := range compressors {
		var b bytes.Buffer
		w := compress(&b)
		if _, err := io.WriteString(w, strings.Repeat("some text ", 1000)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{0, 1, b.Len() / 2} {
			source, sink := io.Pipe()
			answer := compressed(coding, source)
			if err := decompress(answer); err != nil {
				t.Fatal(err)
			}
			go func() {
				_, _ = sink.Write(b.Bytes()[:n])
				_ = sink.CloseWithError(lost)
			}()
			if _, err := io.ReadAll(answer.Body); !errors.Is(err, lost) || errors.Is(err, ErrCompressed) {
				t.Errorf("%s after %d bytes: %v", coding, n, err)
			}
		}
	}
}

// closing notes that it was closed.
type closing struct {
	io.Reader
	closed *bool
}

func (c *closing) Close() error {
	*c.closed = true
	return nil
}

// What decoders hold is known, however little they have read: a few bytes may
// ask for a large window.
func TestDecoderMemory(t *testing.T) {
	compressors := map[string]func(io.Writer) compressor{
		"gzip": compressors["gzip"], "zstd": func(w io.Writer) compressor {
			z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(zstdWindow))
			if err != nil {
				panic(err)
			}
			return z
		},
	}
	for coding, compress := range compressors {
		var body bytes.Buffer
		w := compress(&body)
		if _, err := io.WriteString(w, "hello"); err != nil || w.Flush() != nil {
			t.Fatal(err)
		}
		const answers = 8
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		var held int64
		var all []*http.Response
		for range answers {
			answer := compressed(coding, io.NopCloser(bytes.NewReader(body.Bytes())))
			if err := decompress(answer); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(answer.Body, make([]byte, 5)); err != nil {
				t.Fatal(err)
			}
			held += answer.Body.(*decodedBody).DecoderMemory()
			all = append(all, answer)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if used := int64(after.HeapAlloc) - int64(before.HeapAlloc); used > held {
			t.Errorf("%s: %d answers hold %d bytes, counted as %d", coding, answers, used, held)
		}
		runtime.KeepAlive(all)
	}
}
