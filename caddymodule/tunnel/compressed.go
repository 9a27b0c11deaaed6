package tunnel

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// ErrCompressed says that a model server compressed its answer, which it was
// asked not to do, and that this cannot be undone.
var ErrCompressed = errors.New("the model server compressed its answer although it was asked not to")

// decoder undoes a content coding.
type decoder struct {
	open   func(io.Reader) (io.Reader, error)
	memory int64 // bytes that it holds at most, whatever it decodes
}

// decoders undo the content codings that proxies before model servers use
// unasked (RFC 9110 §8.4.1). They give what a flushed stream holds at once.
var decoders = map[string]decoder{
	"gzip":    {openGzip, 64 << 10},
	"x-gzip":  {openGzip, 64 << 10},
	"deflate": {openDeflate, 64 << 10},
	"zstd":    {openZstd, zstdWindow + 2<<20},
}

func openGzip(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }

// openDeflate reads zlib's format, or that without its frame, which some servers
// send under the same name.
func openDeflate(r io.Reader) (io.Reader, error) {
	const method, deflate = 0x0f, 8 // RFC 1950 §2.2
	buffered := bufio.NewReader(r)
	head, err := buffered.Peek(2)
	if err == nil && head[0]&method == deflate && (int(head[0])<<8|int(head[1]))%31 == 0 {
		return zlib.NewReader(buffered)
	}
	return flate.NewReader(buffered), nil
}

// zstdWindow is the largest window that answers may need, in bytes (RFC 9659 §3).
const zstdWindow = 8 << 20

func openZstd(r io.Reader) (io.Reader, error) {
	return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindow))
}

// decompress has the body of an answer read as if it had not been compressed, or
// closes it and returns ErrCompressed.
func decompress(answer *http.Response) error {
	values := answer.Header["Content-Encoding"]
	if len(values) == 0 {
		return nil
	}
	coding := strings.ToLower(strings.TrimSpace(strings.Join(values, ", ")))
	if coding == "" || coding == "identity" {
		return nil
	}
	using, ok := decoders[coding]
	if !ok {
		_ = answer.Body.Close() // its content cannot be read anyway
		return fmt.Errorf("%w (Content-Encoding %.40q)", ErrCompressed, coding)
	}
	if answer.Body != http.NoBody {
		answer.Body = &decodedBody{body: answer.Body, using: using}
		answer.ContentLength = -1
	}
	answer.Header.Del("Content-Encoding")
	answer.Header.Del("Content-Length")
	return nil
}

// decodedBody is the body of an answer without its content coding.
type decodedBody struct {
	body    io.ReadCloser
	broken  error // what body returned last
	using   decoder
	decoder io.Reader // nil before the first read
}

// DecoderMemory is how many bytes the decoder holds at most.
func (d *decodedBody) DecoderMemory() int64 { return d.using.memory }

// Read implements io.Reader.
func (d *decodedBody) Read(p []byte) (int, error) {
	if d.decoder == nil {
		decoder, err := d.using.open((*codedBody)(d))
		if err != nil {
			return 0, d.fault(err)
		}
		d.decoder = decoder
	}
	n, err := d.decoder.Read(p)
	return n, d.fault(err)
}

// fault is an error of the decoder as one of the body: the body's own, if that
// broke off.
func (d *decodedBody) fault(err error) error {
	switch {
	case err == nil, err == io.EOF:
		return err
	case d.broken != nil && d.broken != io.EOF:
		return d.broken
	}
	return fmt.Errorf("%w: %w", ErrCompressed, err)
}

// Close implements io.Closer. The decoders hold nothing that must be closed, and
// may be reading at this moment.
func (d *decodedBody) Close() error { return d.body.Close() }

// codedBody is a decodedBody as its decoder reads it.
type codedBody decodedBody

// Read implements io.Reader.
func (c *codedBody) Read(p []byte) (int, error) {
	n, err := c.body.Read(p)
	if err != nil {
		c.broken = err
	}
	return n, err
}
