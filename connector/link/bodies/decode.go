package bodies

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/postern-dev/postern/connector/link"
)

// errMalformed is the error of a body that violates the format.
var errMalformed = fmt.Errorf("%w: a body is not encoded as its head says", link.ErrInternal)

// Decode replaces an encoded body of a request with the decoded one, and leaves other requests unchanged. The tunnel
// keeps the body once it was read to its end. The decoded body must be closed, which leaves the encoded one open.
// Errors, including those of Read, wrap a [link.Failure], unless the tunnel was lost. Decode itself reads nothing.
func Decode(r *http.Request, t *Tunnel) error {
	values, ok := r.Header[Field]
	if !ok {
		return nil
	}
	delete(r.Header, Field)
	var h head
	if err := json.Unmarshal([]byte(values[0]), &h); err != nil || len(values) > 1 || h.Length < 0 {
		return errMalformed
	}
	d, baseBytes := &decoder{body: r.Body, end: h.Length, length: h.Length}, []byte(nil)
	if b := h.Base; b != nil {
		if b.Begin < 0 || b.End < 0 || b.Begin > min(b.Length, h.Length)-b.End {
			return errMalformed
		}
		if baseBytes = t.base(*b); baseBytes == nil {
			return link.ErrUnknownBody
		}
		d.begin, d.end = b.Begin, h.Length-b.End
	}
	if h.Number != 0 {
		d.kept = t.open("", h.Number, h.Length)
	}
	switch {
	case d.kept != nil: // the cache may have dropped the base to make room
		copy(d.kept.bytes, baseBytes[:d.begin])
		copy(d.kept.bytes[d.end:], baseBytes[int64(len(baseBytes))-(h.Length-d.end):])
	case baseBytes != nil:
		return link.ErrUnknownBody
	}
	r.Body, r.ContentLength = d, h.Length
	return nil
}

// base returns the bytes of the kept body that matches b exactly, or nil.
func (t *Tunnel) base(b base) []byte {
	for _, kept := range t.find(1, func(kept *body) bool { return kept.number == b.Number }) {
		if int64(len(kept.bytes)) == b.Length && checksum(kept.bytes) == b.CRC32C {
			t.use(kept)
			return kept.bytes
		}
	}
	return nil
}

// decoder decodes a body while it is read.
type decoder struct {
	body io.Reader

	mu         sync.Mutex    // held by Read; guards the fields below
	kept       *body         // receives the decoded bytes; nil: the body is not kept
	begin, end int64         // the part that was sent
	next       int64         // position of the next byte
	length     int64         // of the body
	zstd       *zstd.Decoder // nil before the first read of that part
	tunnelErr  error         // the error of reading from the tunnel
	err        error         // the result of later reads
}

// DecoderMemory returns how many bytes the decoder takes, without a body that the tunnel keeps.
func (*decoder) DecoderMemory() int64 { return 4 * frameBytes }

// Read implements io.Reader.
func (d *decoder) Read(p []byte) (n int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.err != nil:
		return 0, d.err
	case d.next < d.begin:
		n = copy(p, d.kept.bytes[d.next:d.begin])
	case d.next < d.end:
		if n, err = d.decode(p[:min(int64(len(p)), d.end-d.next)]); d.kept != nil {
			copy(d.kept.bytes[d.next:], p[:n])
		}
	case d.next < d.length:
		n = copy(p, d.kept.bytes[d.next:])
	}
	if d.next += int64(n); d.next == d.length && err == nil {
		err = io.EOF
	}
	return n, d.stop(err)
}

// decode reads from the part that was sent. It returns the last bytes only if no others follow.
func (d *decoder) decode(p []byte) (int, error) {
	if d.zstd == nil {
		d.zstd = decoders.Get().(*zstd.Decoder)
		_ = d.zstd.Reset((*received)(d)) // the first read returns the error
	}
	n, err := d.zstd.Read(p)
	if d.next+int64(n) == d.end && (err == nil || err == io.EOF) {
		if _, err = io.ReadFull(d.zstd, make([]byte, 1)); err == io.EOF {
			return n, nil
		}
	}
	switch {
	case d.tunnelErr != nil:
		return 0, d.tunnelErr
	case err != nil || d.next+int64(n) == d.end:
		return 0, errMalformed
	}
	return n, nil
}

// Close implements io.Closer. It waits for a Read.
func (d *decoder) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.stop(io.ErrClosedPipe)
	return nil
}

// stop makes all later reads return err, unless it is nil.
func (d *decoder) stop(err error) error {
	if err == nil || d.err != nil {
		return err
	}
	if d.err = err; d.kept != nil {
		d.kept.end(err == io.EOF, nil)
		d.kept = nil
	}
	if d.zstd != nil {
		_ = d.zstd.Reset(nil) // it cannot fail
		decoders.Put(d.zstd)
	}
	return err
}

// decoders contains unused decoders, which start no goroutines.
var decoders = sync.Pool{New: func() any {
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(frameBytes))
	if err != nil {
		panic(err) // the options are constant
	}
	return z
}}

// received reads the encoded bytes of a decoder from the tunnel.
type received decoder

// Read implements io.Reader.
func (r *received) Read(p []byte) (n int, err error) {
	if n, err = r.body.Read(p); err != io.EOF {
		r.tunnelErr = err
	}
	return n, err
}
