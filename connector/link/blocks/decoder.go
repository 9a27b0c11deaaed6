package blocks

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// Decoder decodes a body while it is read. It is not safe for concurrent use.
type Decoder struct {
	body  io.ReadCloser
	store *Store
	left  int64 // bytes of the decoded body that no record has appended yet

	in, out *buffer // the current piece, and its data if that was compressed
	records []byte  // unread
	data    []byte  // of the records that are unread
	pending []byte  // of the body: in data, or a block
	err     error
}

// Decode replaces an encoded body of a request with the decoded one, which keeps its blocks
// in store. It leaves other requests unchanged.
func Decode(r *http.Request, store *Store) error {
	values, ok := r.Header[Field]
	if !ok {
		return nil
	}
	length, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil || length < 0 || len(values) > 1 {
		return fmt.Errorf("%w: the field %s", ErrMalformed, Field)
	}
	delete(r.Header, Field)
	r.Body, r.ContentLength = NewDecoder(r.Body, length, store), length
	return nil
}

// NewDecoder returns a decoder of a body with length bytes after decoding.
func NewDecoder(body io.ReadCloser, length int64, store *Store) *Decoder {
	return &Decoder{body: body, left: length, store: store}
}

// DecoderMemory returns the maximum number of bytes held by the decoder.
func (*Decoder) DecoderMemory() int64 { return Memory }

// Close implements io.Closer.
func (d *Decoder) Close() error {
	d.release(io.ErrClosedPipe)
	return d.body.Close()
}

// release returns the buffers to their pool. All reads return err from now on.
func (d *Decoder) release(err error) {
	if d.err != nil {
		return
	}
	d.err = err
	if d.in != nil {
		buffers.Put(d.in)
		buffers.Put(d.out)
		d.in, d.out, d.records, d.data, d.pending = nil, nil, nil, nil, nil
	}
}

// Read implements io.Reader. Its errors are [ErrUnknownBlock], [ErrMalformed] and those of the
// body.
func (d *Decoder) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(d.pending) == 0 {
		if d.err != nil {
			return 0, d.err
		}
		if err := d.next(); err != nil {
			d.release(err)
		}
	}
	n := copy(p, d.pending)
	d.pending = d.pending[n:]
	return n, nil
}

// next decodes the next record. It returns io.EOF after the last one.
func (d *Decoder) next() error {
	if len(d.records) == 0 {
		if len(d.data) > 0 {
			return ErrMalformed
		}
		return d.piece()
	}
	v, err := d.uvarint()
	if err != nil {
		return err
	}
	block, id := []byte(nil), v>>1
	if v&1 == 0 {
		if block = d.store.get(id); block == nil {
			return ErrUnknownBlock
		}
	} else {
		if v>>1 == 0 || v>>1 > uint64(len(d.data)) {
			return ErrMalformed
		}
		block, d.data = d.data[:v>>1], d.data[v>>1:]
		if id, err = d.uvarint(); err != nil {
			return err
		}
	}
	if int64(len(block)) > d.left {
		return ErrMalformed
	}
	if v&1 == 1 && id != 0 {
		d.store.put(id, block)
	}
	d.left -= int64(len(block))
	d.pending = block
	return nil
}

func (d *Decoder) uvarint() (uint64, error) {
	v, n := binary.Uvarint(d.records)
	if n <= 0 {
		return 0, ErrMalformed
	}
	d.records = d.records[n:]
	return v, nil
}

// piece reads the next piece. At the end of the body it returns io.EOF.
func (d *Decoder) piece() error {
	if d.in == nil {
		d.in, d.out = buffers.Get().(*buffer), buffers.Get().(*buffer)
	}
	n, err := io.ReadFull(d.body, d.in[:lengthBytes])
	switch {
	case err == io.EOF && d.left == 0:
		return io.EOF
	case err != nil:
		return tooShort(err)
	}
	l, err := parseLengths(d.in[:n])
	if err != nil {
		return err
	}
	read := d.in[:l.records+l.data]
	if _, err := io.ReadFull(d.body, read); err != nil {
		return tooShort(err)
	}
	d.records, d.data = read[:l.records], read[l.records:]
	if l.data == l.decoded {
		return nil
	}
	d.data, err = decompressor().DecodeAll(d.data, d.out[:0:l.decoded])
	if err != nil || len(d.data) != l.decoded {
		return fmt.Errorf("%w: its data", ErrMalformed)
	}
	return nil
}

// tooShort maps the end of a body to an error.
func tooShort(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("%w: it is too short", ErrMalformed)
	}
	return err
}
