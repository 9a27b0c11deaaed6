package serve

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/memory"
)

// errTooLarge is returned for a body that exceeds its limit.
var errTooLarge = errors.New("body exceeds the size limit")

// readBody reads a request body of up to limit bytes to its end. Only after that does
// net/http detect that the client disconnects, and Caddy clear its read deadline.
// reserve reserves memory for n bytes in total, in advance if the length is known. look gets the body as far as it has
// arrived; if it fails with an error for the client, the rest is not read.
func readBody(r *http.Request, limit int64, reserve func(n int64) error, look func([]byte) error,
) ([]byte, *dialect.Error) {
	if r.ContentLength > limit {
		return nil, dialect.BodyTooLarge(limit)
	}
	body, err := readAll(&steadyReader{r: r.Body, begun: time.Now()}, r.ContentLength, limit, reserve, look)
	return body, bodyError(err, limit)
}

// contentEncoding returns how the body is compressed, a key of [tunnel.Decoders], or "".
func contentEncoding(h http.Header) (string, *dialect.Error) {
	coding := tunnel.Coding(h)
	if _, ok := tunnel.Decoders[coding]; coding != "" && !ok {
		return "", dialect.UnsupportedEncoding()
	}
	return coding, nil
}

// decompress returns the decompressed body, up to limit bytes. reserve reserves memory
// for n bytes in total.
func decompress(body []byte, encoding string, limit int64, reserve func(n int64) error) ([]byte, *dialect.Error) {
	decoder := tunnel.Decoders[encoding]
	cost := int64(len(body)) + decoder.Memory
	if err := reserve(cost); err != nil {
		return nil, bodyError(err, limit)
	}
	r, err := decoder.Open(bytes.NewReader(body))
	if err != nil {
		return nil, bodyError(err, limit)
	}
	body, err = readAll(r, -1, limit, func(n int64) error { return reserve(cost + n) }, nil)
	return body, bodyError(err, limit)
}

// bodyError returns the client's error for an error of reading a body.
func bodyError(err error, limit int64) *dialect.Error {
	if err == nil {
		return nil
	}
	var maxBytes *http.MaxBytesError
	var refused *dialect.Error
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.Is(err, errTooLarge), errors.As(err, &maxBytes), errors.Is(err, zstd.ErrDecoderSizeExceeded),
		errors.Is(err, zstd.ErrWindowSizeExceeded):
		return dialect.BodyTooLarge(limit)
	case errors.Is(err, memory.ErrExceeded):
		return dialect.MemoryFull()
	case errors.Is(err, errTooSlow):
		return dialect.SlowBody()
	default:
		return dialect.UnreadableBody()
	}
}

// readAll reads r to its end, at most limit bytes. size is the declared size in
// bytes, or -1. The buffer starts small and grows with the bytes that arrive. reserve
// reserves memory for n bytes in total, for a declared size in advance. look may be nil, see readBody.
func readAll(r io.Reader, size, limit int64, reserve func(n int64) error, look func([]byte) error) ([]byte, error) {
	const minBuffer, maxBuffer = 512, 1 << 20 // at first, in bytes
	if err := reserve(max(size, 0)); err != nil {
		return nil, err
	}
	// With one spare byte, the read that returns io.EOF needs no larger buffer.
	body := make([]byte, 0, max(min(size, maxBuffer)+1, minBuffer))
	for {
		n, err := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if look != nil {
			if err := look(body); err != nil {
				return nil, err
			}
		}
		switch {
		case int64(len(body)) > limit:
			return nil, errTooLarge
		case err == io.EOF:
			return body, nil
		case err != nil:
			return nil, err
		}
		if len(body) == cap(body) {
			capacity := enlarged(body, size, limit)
			if capacity > size+1 {
				if err := reserve(capacity); err != nil {
					return nil, err
				}
			}
			body = append(make([]byte, 0, capacity), body...)
		}
	}
}

// enlarged returns the capacity of the buffer that replaces a full one: twice as
// much, or eight times for a declared size, but no more than the body can still need.
func enlarged(body []byte, size, limit int64) int64 {
	factor := int64(2)
	largest := limit + 1 // the extra byte detects a body that is too large
	if size >= int64(len(body)) && size < limit {
		largest = size + 1 // the extra byte is for the read that returns io.EOF
		factor = 8
	}
	return max(min(factor*int64(len(body)), largest), int64(len(body))+1)
}

// The minimum average rate at which a client must send a body or receive a whole
// answer after the grace period, because both stay in memory. Caddy's read_idle and
// write_idle handle clients that stall.
const (
	minProgress   = 64 << 10 // bytes a minute
	progressGrace = time.Minute
)

// errTooSlow is returned if a client sends a body or receives a whole answer too
// slowly.
var errTooSlow = errors.New("the client is too slow")

// tooSlow reports whether n bytes since begun are below the minimum rate.
func tooSlow(begun time.Time, n int64) bool {
	late := time.Since(begun) - progressGrace
	return float64(n) < late.Minutes()*minProgress
}

// steadyReader fails with errTooSlow when its data arrives too slowly.
type steadyReader struct {
	r     io.Reader
	begun time.Time
	read  int64 // bytes
}

// Read implements io.Reader.
func (s *steadyReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.read += int64(n)
	if err == nil && tooSlow(s.begun, s.read) {
		return 0, errTooSlow
	}
	return n, err
}
