package serve

import (
	"bytes"
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

// errTooLarge is the error of a body past its limit.
var errTooLarge = errors.New("body is larger than its limit")

// readBody reads the request's body to its end; it may have up to limit bytes.
// Reading to the end matters: only then does net/http notice a client that goes
// away, and Caddy lift its read deadline. hold reserves memory for so many bytes in
// all, before they are read if their number is known.
func readBody(r *http.Request, limit int64, hold func(n int64) error) ([]byte, *dialect.Error) {
	if r.ContentLength > limit {
		return nil, dialect.BodyTooLarge(limit)
	}
	body, err := readAll(&steadyReader{r: r.Body, begun: time.Now()}, r.ContentLength, limit, hold)
	return body, bodyError(err, limit)
}

// contentEncoding returns how the body is compressed: "gzip", "zstd" or "" (RFC
// 9110 §8.4).
func contentEncoding(h http.Header) (string, *dialect.Error) {
	switch encoding := strings.ToLower(strings.TrimSpace(h.Get("Content-Encoding"))); encoding {
	case "", "identity":
		return "", nil
	case "gzip", "x-gzip":
		return "gzip", nil
	case "zstd":
		return encoding, nil
	}
	return "", dialect.UnsupportedEncoding()
}

// decompress returns what a body decompresses to, up to limit bytes. hold reserves
// memory for so many bytes in all.
func decompress(body []byte, encoding string, limit int64, hold func(n int64) error) ([]byte, *dialect.Error) {
	packed := int64(len(body))
	open, cost := openGzip, packed+gzipCost
	if encoding == "zstd" {
		open, cost = openZstd, packed+zstdCost
	}
	if err := hold(cost); err != nil {
		return nil, bodyError(err, limit)
	}
	r, err := open(bytes.NewReader(body))
	if err != nil {
		return nil, bodyError(err, limit)
	}
	defer r.Close()
	body, err = readAll(r, -1, limit, func(n int64) error { return hold(cost + n) })
	return body, bodyError(err, limit)
}

// bodyError maps an error of reading a body to the client's.
func bodyError(err error, limit int64) *dialect.Error {
	var maxBytes *http.MaxBytesError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errTooLarge), errors.As(err, &maxBytes), errors.Is(err, zstd.ErrWindowSizeExceeded):
		return dialect.BodyTooLarge(limit)
	case errors.Is(err, memory.ErrExceeded):
		return dialect.MemoryFull()
	case errors.Is(err, errTooSlow):
		return dialect.SlowBody()
	default:
		return dialect.UnreadableBody()
	}
}

func openGzip(r io.Reader) (io.ReadCloser, error) { return gzip.NewReader(r) }

// zstdWindow is the largest window that a body may need, in bytes (RFC 9659
// §3). Encoders that do not know a body's size ask for as much, however small
// the body is.
const zstdWindow = 8 << 20

// openZstd returns a decoder that runs on the goroutine of its reader and never
// holds more than zstdCost.
func openZstd(r io.Reader) (io.ReadCloser, error) {
	zr, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindow))
	if err != nil {
		return nil, err
	}
	return zr.IOReadCloser(), nil
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
