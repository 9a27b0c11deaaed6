package serve

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/zstd"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/link/bodies"
)

func gzipped(t *testing.T, p []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	if _, err := w.Write(p); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func zstded(t *testing.T, p []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll(p, nil)
}

// unbounded reserves any number of bytes.
func unbounded(int64) error { return nil }

func TestReadBody(t *testing.T) {
	const limit = 64 << 10
	full := bytes.Repeat([]byte("0123456789abcdef"), limit/16)
	small := []byte(`{"model":"m"}`)
	over := append(bytes.Clone(full), 'x')
	for _, test := range []struct {
		name, encoding string
		body           io.Reader
		length         int64
		want           []byte
		status         int
	}{
		{"plain", "", bytes.NewReader(small), int64(len(small)), small, 0},
		{"identity", "identity", bytes.NewReader(small), -1, small, 0},
		{"empty", "", strings.NewReader(""), 0, nil, 0},
		{"at the limit", "", bytes.NewReader(full), -1, full, 0},
		{"at the limit, one byte at a time", "", iotest.OneByteReader(bytes.NewReader(full)), -1, full, 0},
		{"one more", "", bytes.NewReader(over), -1, nil, 413},
		{"one more, declared", "", bytes.NewReader(over), limit + 1, nil, 413},
		{"gzip", "gzip", bytes.NewReader(gzipped(t, full)), -1, full, 0},
		{"gzip, upper case", " GZIP ", bytes.NewReader(gzipped(t, small)), -1, small, 0},
		{"gzip bomb", "gzip", bytes.NewReader(gzipped(t, over)), -1, nil, 413},
		{"gzip, cut", "gzip", bytes.NewReader(gzipped(t, full)[:30]), -1, nil, 400},
		{"gzip, none", "gzip", bytes.NewReader(small), -1, nil, 400},
		{"zstd", "zstd", bytes.NewReader(zstded(t, full)), -1, full, 0},
		{"zstd bomb", "zstd", bytes.NewReader(zstded(t, bytes.Repeat(full, 100))), -1, nil, 413},
		{"zstd, none", "zstd", bytes.NewReader(small), -1, nil, 400},
		{"brotli", "br", bytes.NewReader(small), -1, nil, 415},
		{"deflate", "deflate", bytes.NewReader(small), -1, nil, 415},
		{"two codings", "gzip, zstd", bytes.NewReader(small), -1, nil, 415},
		{"client gone", "", iotest.ErrReader(io.ErrUnexpectedEOF), -1, nil, 400},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", test.body)
			r.ContentLength = test.length
			if test.encoding != "" {
				r.Header.Set("Content-Encoding", test.encoding)
			}
			encoding, err := contentEncoding(r.Header)
			var got []byte
			if err == nil {
				got, err = readBody(r, limit, unbounded, nil)
			}
			if err == nil && encoding != "" {
				got, err = decompress(got, encoding, limit, unbounded)
			}
			switch {
			case err == nil && test.status == 0:
				if !bytes.Equal(got, test.want) {
					t.Errorf("got %d bytes, want %d", len(got), len(test.want))
				}
			case err == nil || err.HTTPStatus(dialect.Chat) != test.status:
				t.Errorf("error %v, want status %d", err, test.status)
			}
		})
	}
}

// A buffer grows to the declared size, not to twice as much.
func TestReadAllBuffer(t *testing.T) {
	const limit = 4 << 20
	for _, test := range []struct {
		name        string
		bytes, size int64
		maxSize     int // of the buffer
	}{
		{"small", 100, 100, 512},
		{"known size", 3 << 20, 3 << 20, 3<<20 + 1},
		{"unknown size", 3 << 20, -1, limit + 1},
		{"at the limit", limit, limit, limit + 1},
		{"more than announced", 3 << 20, 2 << 20, limit + 1},
		{"less than announced", 1 << 20, limit, 2 << 20},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := bytes.Repeat([]byte("x"), int(test.bytes))
			got, err := readAll(bytes.NewReader(want), test.size, limit, unbounded, nil)
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("got %d bytes, %v", len(got), err)
			}
			if cap(got) > test.maxSize {
				t.Errorf("the buffer has %d bytes, want at most %d", cap(got), test.maxSize)
			}
		})
	}
}

// The gateway keeps no prompt of a key that was revoked, and none if requests need the memory.
func TestKeptPrompts(t *testing.T) {
	g := newGateway(t, 8<<20)
	tunnel, id := g.backend.Bodies.NewTunnel(1<<30), g.key.ID()
	prompt := strings.Repeat("a long prompt. ", 2000)
	known := func() bool {
		body := io.NopCloser(strings.NewReader(prompt))
		r := &http.Request{Header: http.Header{}, Body: body, ContentLength: int64(len(prompt))}
		sent := bodies.Encode(r, tunnel, id)
		sent.End(true)
		return sent.Refers()
	}
	if known() || !known() {
		t.Error("the prompt was not kept")
	}
	all := g.backend.Memory.Open("", "", "")
	if err := all.Set(8 << 20); err != nil {
		t.Fatal(err)
	}
	all.Release()
	if known() || !known() {
		t.Error("the prompt was kept although a request needed the memory, or not kept afterwards")
	}
	if _, err := g.backend.Store.RevokeKey(t.Context(), store.DefaultAccount, id); err != nil {
		t.Fatal(err)
	}
	if known() {
		t.Error("the prompt of a revoked key was kept")
	}
}
