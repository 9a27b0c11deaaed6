package tunnel

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// ErrCompressed is returned if a model server compressed its answer although it was
// asked not to, and the answer cannot be decompressed.
var ErrCompressed = errors.New("the model server compressed its answer although it was asked not to")

// Decoder undoes a content coding.
type Decoder struct {
	// Open returns a reader of decompressed data. It returns flushed data at once, and needs no Close.
	Open   func(io.Reader) (io.Reader, error)
	Memory int64 // maximum size of the reader in bytes
}

// Decoders undo the content codings of requests, and those that proxies in front of model servers
// apply unasked (RFC 9110 §8.4.1).
var Decoders = map[string]Decoder{
	"gzip":   {openGzip, 64 << 10},
	"x-gzip": {openGzip, 64 << 10},
	"zstd":   {openZstd, zstdWindow + 2<<20},
}

func openGzip(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }

// zstdWindow is the largest window that a body may need, in bytes (RFC 9659 §3). Encoders that do
// not know the size of a body ask for all of it.
const zstdWindow = 8 << 20

func openZstd(r io.Reader) (io.Reader, error) {
	return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(zstdWindow))
}

// Coding returns the content coding of a message, in lower case, "" for none.
func Coding(h http.Header) string {
	coding := strings.ToLower(strings.TrimSpace(strings.Join(h["Content-Encoding"], ", ")))
	if coding == "identity" {
		return ""
	}
	return coding
}

// decompress wraps the body of a compressed answer to return decompressed data. If
// the coding is unknown, it closes the body and returns ErrCompressed.
func decompress(answer *http.Response) error {
	coding := Coding(answer.Header)
	if coding == "" {
		return nil
	}
	decoder, ok := Decoders[coding]
	if !ok {
		_ = answer.Body.Close() // its content cannot be read anyway
		return fmt.Errorf("%w (Content-Encoding %.40q)", ErrCompressed, coding)
	}
	if answer.Body != http.NoBody {
		answer.Body = &decodedBody{body: answer.Body, decoder: decoder}
		answer.ContentLength = -1
	}
	answer.Header.Del("Content-Encoding")
	answer.Header.Del("Content-Length")
	return nil
}

// decodedBody is the body of an answer without its content coding.
type decodedBody struct {
	body    io.ReadCloser
	broken  error // last error of body
	decoder Decoder
	decoded io.Reader // nil before the first read
}

// DecoderMemory returns the maximum size of the decoder in bytes.
func (d *decodedBody) DecoderMemory() int64 { return d.decoder.Memory }

// Read implements io.Reader.
func (d *decodedBody) Read(p []byte) (int, error) {
	if d.decoded == nil {
		decoded, err := d.decoder.Open((*codedBody)(d))
		if err != nil {
			return 0, d.fault(err)
		}
		d.decoded = decoded
	}
	n, err := d.decoded.Read(p)
	return n, d.fault(err)
}

// fault maps an error of the decoder to one of the body. If the body itself failed,
// it returns that error.
func (d *decodedBody) fault(err error) error {
	switch {
	case err == nil, err == io.EOF:
		return err
	case d.broken != nil && d.broken != io.EOF:
		return d.broken
	}
	return fmt.Errorf("%w: %w", ErrCompressed, err)
}

// Close implements io.Closer. It does not close the decoder, which needs no Close and may be in use by
// a concurrent Read.
func (d *decodedBody) Close() error { return d.body.Close() }

// codedBody is the compressed side of a decodedBody, read by its decoder.
type codedBody decodedBody

// Read implements io.Reader.
func (c *codedBody) Read(p []byte) (int, error) {
	n, err := c.body.Read(p)
	if err != nil {
		c.broken = err
	}
	return n, err
}
