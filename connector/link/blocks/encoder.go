package blocks

import (
	"encoding/binary"
	"io"
	"sync/atomic"
)

// maxRecord is the maximum length of a record.
const maxRecord = 2 * binary.MaxVarintLen64

// Encoder encodes a body while it is read. It is not safe for concurrent use.
type Encoder struct {
	body io.ReadCloser
	left int64    // bytes of body that are unread
	use  *request // of blocks; nil: none

	whole atomic.Bool // the body was encoded to its end

	// raw has the literals of the next piece in raw[:data], and bytes of the body that
	// follow, in raw[r:w].
	raw        *buffer
	data, r, w int
	records    []byte // of the next piece

	out   *buffer
	piece []byte // in out: unread bytes of the current piece
	err   error
}

// Options select how a body is encoded.
type Options struct {
	// Known are the blocks that the connector has, for all owners; nil: none.
	Known *Known
	Owner string // of the body
	Whole bool   // refer to no block
}

// NewEncoder returns an encoder of a body with length bytes. It closes body when it is
// closed.
func NewEncoder(body io.ReadCloser, length int64, o Options) *Encoder {
	e := &Encoder{body: body, left: length}
	if o.Known != nil {
		e.use = o.Known.begin(o.Owner, o.Whole)
	}
	return e
}

// Close implements io.Closer.
func (e *Encoder) Close() error {
	e.release(io.ErrClosedPipe)
	return e.body.Close()
}

// Received records that the answer to the request has begun: later requests may refer to its
// blocks. It has no effect before the end of the body, and is safe for concurrent use.
func (e *Encoder) Received() {
	if e.use != nil && e.whole.Load() {
		e.use.received()
	}
}

// Unknown records [ErrUnknownBlock]: the connector is assumed to have no blocks.
func (e *Encoder) Unknown() {
	if e.use != nil {
		e.use.unknown()
	}
}

// release returns the buffers to their pool. All reads return err from now on.
func (e *Encoder) release(err error) {
	if e.err != nil {
		return
	}
	e.err = err
	if e.raw != nil {
		buffers.Put(e.raw)
		buffers.Put(e.out)
		e.raw, e.out, e.piece = nil, nil, nil
	}
}

// Read implements io.Reader. Its errors are those of the body, and io.ErrUnexpectedEOF if
// that is too short.
func (e *Encoder) Read(p []byte) (int, error) {
	for len(e.piece) == 0 {
		if e.err != nil {
			return 0, e.err
		}
		if err := e.next(); err != nil {
			e.release(err)
		}
	}
	n := copy(p, e.piece)
	e.piece = e.piece[n:]
	return n, nil
}

// next encodes the next piece. It returns io.EOF after the last one.
func (e *Encoder) next() error {
	if e.raw == nil {
		e.raw, e.out = buffers.Get().(*buffer), buffers.Get().(*buffer)
		e.records = make([]byte, 0, recordBytes)
	}
	e.data = 0
	for {
		if err := e.fill(); err != nil {
			return err
		}
		full := e.take()
		if full || e.left == 0 && e.r == e.w {
			break
		}
	}
	if len(e.records) == 0 {
		e.whole.Store(true)
		return io.EOF
	}
	e.write()
	return nil
}

// fill moves the unread bytes after the literals, and reads as many as fit.
func (e *Encoder) fill() error {
	e.w = e.data + copy(e.raw[e.data:], e.raw[e.r:e.w])
	e.r = e.data
	n, err := io.ReadFull(e.body, e.raw[e.w:min(pieceBytes, int64(e.w)+e.left)])
	e.w += n
	e.left -= int64(n)
	if err == io.EOF && n == 0 && e.left == 0 {
		return nil
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// take adds records for the unread bytes, and reports whether the piece is full.
func (e *Encoder) take() bool {
	for e.r < e.w {
		if len(e.records)+maxRecord > recordBytes {
			return true
		}
		n := e.w - e.r
		if e.use != nil {
			n = cut(e.raw[e.r:e.w], e.left == 0)
		}
		if n == 0 {
			// The rest is the beginning of a block. The piece is full if the block may not fit.
			return e.data > pieceBytes-maxBlock
		}
		e.add(e.raw[e.r : e.r+n])
		e.r += n
	}
	return e.data > pieceBytes-maxBlock
}

// add adds a block to the piece.
func (e *Encoder) add(block []byte) {
	var id uint64
	if e.use != nil {
		var known bool
		if id, known = e.use.find(block); known {
			e.records = binary.AppendUvarint(e.records, id<<1)
			return
		}
	}
	e.records = binary.AppendUvarint(e.records, uint64(len(block))<<1|1)
	e.records = binary.AppendUvarint(e.records, id)
	e.data += copy(e.raw[e.data:], block)
}

// write writes the piece to out.
func (e *Encoder) write() {
	start := lengthBytes + copy(e.out[lengthBytes:], e.records)
	data := compressor().EncodeAll(e.raw[:e.data], e.out[start:start])
	if len(data) >= e.data {
		data = e.raw[:e.data]
	}
	// A frame that has outgrown out is in another array.
	e.piece = e.out[:start+copy(e.out[start:], data)]
	lengths{len(e.records), len(data), e.data}.put(e.piece)
	e.records = e.records[:0]
}
