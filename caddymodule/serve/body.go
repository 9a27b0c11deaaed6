package serve

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/connector/memory"
)

// errTooLarge is the error of a limited reader past its limit.
var errTooLarge = errors.New("body is larger than its limit")

// readBody reads the request's body to its end, undoing gzip and zstd
// (RFC 9110 §8.4); neither what arrives nor what it decodes to may be larger
// than limit bytes. Reading to the end matters: only then does net/http notice
// a client that goes away, and Caddy lift its read deadline. hold reserves
// memory for so many bytes in all, before they are read if their number is known.
func readBody(r *http.Request, limit int64, hold func(n int64) error) ([]byte, *dialect.Error) {
	if r.ContentLength > limit {
		return nil, dialect.BodyTooLarge(limit)
	}
	from := &steadyReader{r: r.Body, begun: time.Now()}
	var body []byte
	var err error
	switch encoding := strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding"))); encoding {
	case "", "identity":
		body, err = readAll(from, r.ContentLength, limit, hold)
	case "gzip", "x-gzip":
		body, err = readGzip(from, limit, hold)
	case "zstd":
		body, err = readZstd(from, limit, hold)
	default:
		return nil, dialect.UnsupportedEncoding()
	}
	var maxBytes *http.MaxBytesError
	switch {
	case err == nil:
		return body, nil
	case errors.Is(err, errTooLarge), errors.As(err, &maxBytes), errors.Is(err, zstd.ErrDecoderSizeExceeded),
		errors.Is(err, zstd.ErrWindowSizeExceeded):
		return nil, dialect.BodyTooLarge(limit)
	case errors.Is(err, memory.ErrExceeded):
		return nil, dialect.MemoryFull()
	case errors.Is(err, errTooSlow):
		return nil, dialect.SlowBody()
	default:
		return nil, dialect.UnreadableBody()
	}
}

// readGzip reads a gzip body whose decoded size may be up to limit bytes.
func readGzip(r io.Reader, limit int64, hold func(n int64) error) ([]byte, error) {
	if err := hold(gzipCost); err != nil {
		return nil, err
	}
	zr, err := gzip.NewReader(&limitReader{r, limit})
	if err != nil {
		return nil, err
	}
	return readAll(zr, -1, limit, func(n int64) error { return hold(gzipCost + n) })
}

// zstdWindow is the largest window that a body may need, in bytes (RFC 9659
// §3). Encoders that do not know a body's size ask for as much, however small
// the body is.
const zstdWindow = 8 << 20

// readZstd reads a zstd body whose decoded size may be up to limit bytes. The
// decoder runs on this goroutine and never holds more than zstdCost.
func readZstd(r io.Reader, limit int64, hold func(n int64) error) ([]byte, error) {
	if err := hold(zstdCost); err != nil {
		return nil, err
	}
	zr, err := zstd.NewReader(&limitReader{r, limit},
		zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(zstdWindow), zstd.WithDecoderMaxMemory(uint64(max(limit, zstdWindow))))
	if err != nil {
		return nil, err
	}
	defer zr.Close()
	return readAll(zr, -1, limit, func(n int64) error { return hold(zstdCost + n) })
}

// readAll reads r to its end, at most limit bytes. size is the expected size
// in bytes, or -1. A declared size is believed only so far: the buffer grows
// with what really arrives, so that headers alone cannot claim memory. hold
// reserves memory for so many bytes in all: for a declared size at once.
func readAll(r io.Reader, size, limit int64, hold func(n int64) error) ([]byte, error) {
	const believed, least = 1 << 20, 512
	if err := hold(max(size, 0)); err != nil {
		return nil, err
	}
	// One byte more than expected: the read that finds the end then needs no
	// larger buffer.
	body := make([]byte, 0, max(min(size, believed)+1, least))
	for {
		n, err := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case int64(len(body)) > limit:
			return nil, errTooLarge
		case err == io.EOF:
			return body, nil
		case err != nil:
			return nil, err
		}
		if len(body) == cap(body) {
			room := enlarged(body, size, limit)
			if room > size+1 {
				if err := hold(room); err != nil {
					return nil, err
				}
			}
			body = append(make([]byte, 0, room), body...)
		}
	}
}

// enlarged is the room that replaces a full buffer's: twice as much, but not
// beyond what can still come. The last and largest step would otherwise be
// mostly waste.
func enlarged(body []byte, size, limit int64) int64 {
	most := limit + 1 // one byte more shows that it is too large
	if size >= int64(len(body)) && size < limit {
		most = size + 1 // the room for finding the end
	}
	return max(min(2*int64(len(body)), most), int64(len(body))+1)
}

// limitReader passes at most left bytes on; more is errTooLarge.
type limitReader struct {
	r    io.Reader
	left int64
}

// Read implements io.Reader.
func (l *limitReader) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, errTooLarge
	}
	return n, err
}
