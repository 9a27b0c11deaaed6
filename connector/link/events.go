package link

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"sync"
)

// Most events of a stream differ from their predecessor in a few bytes, the text of a
// token. The transfer coding "events" sends only these. The stream is cut into pieces,
// usually one for each event, and each piece is sent as a record:
//
//	prefix   uvarint   bytes repeated from the beginning of the previous piece
//	suffix   uvarint   bytes repeated from its end
//	length   uvarint   bytes in between, which follow
//
// A chunk contains whole records, so that nothing waits for the next chunk.
//
// Records of four bytes could stand for pieces of two KiB each. A stream is therefore at most
// maxGain times as long as its records, and maxStart bytes. An encoder that has no such bytes
// left repeats nothing.
const (
	codingEvents = "events, chunked" // the Transfer-Encoding
	// maxPiece bounds a piece: both ends keep the previous one, and a record must fit into
	// a small buffer.
	maxPiece = 2 << 10
	// minPiece bounds the number of records.
	minPiece = 32
	maxGain  = 64
	maxStart = 64 << 10
	// minRecord is the size of a record without bytes in between.
	minRecord = 3
)

// pieces is the state of an encoder or a decoder of events: the previous piece.
type pieces struct {
	last [maxPiece]byte
	n    int   // bytes in last
	read int   // of these, bytes that the decoder has returned
	left int64 // bytes that pieces may have without a byte of a record
}

var piecesPool = sync.Pool{New: func() any { return new(pieces) }}

func newPieces() *pieces {
	e := piecesPool.Get().(*pieces)
	e.n, e.read, e.left = 0, 0, maxStart
	return e
}

// put returns e to its pool. e may be nil.
func (e *pieces) put() {
	if e != nil {
		piecesPool.Put(e)
	}
}

// appendRecords appends the records for the next bytes of the stream.
func (e *pieces) appendRecords(b, p []byte) []byte {
	for len(p) > 0 {
		piece := cutPiece(p)
		p = p[len(piece):]
		prefix := commonPrefix(e.last[:e.n], piece)
		suffix := commonSuffix(e.last[prefix:e.n], piece[prefix:])
		if e.left+int64(maxGain*(minRecord+len(piece)-prefix-suffix)-len(piece)) < 0 {
			prefix, suffix = 0, 0
		}
		literal, begin := piece[prefix:len(piece)-suffix], len(b)
		b = binary.AppendUvarint(b, uint64(prefix))
		b = binary.AppendUvarint(b, uint64(suffix))
		b = binary.AppendUvarint(b, uint64(len(literal)))
		b = append(b, literal...)
		e.n = copy(e.last[:], piece)
		e.left += int64(maxGain*(len(b)-begin) - len(piece))
	}
	return b
}

// decode decodes the record at the beginning of data. It returns the record's length, or 0
// if data ends too early.
func (e *pieces) decode(data []byte) (int, error) {
	var fields [3]int // prefix, suffix, length
	used := 0
	for i := range fields {
		v, n := binary.Uvarint(data[used:])
		if n == 0 {
			return 0, nil
		}
		if n < 0 || v > maxPiece {
			return 0, Malformed("a record of an event stream is too long")
		}
		fields[i] = int(v)
		used += n
	}
	prefix, suffix, length := fields[0], fields[1], fields[2]
	size := prefix + length + suffix
	if prefix+suffix > e.n || size == 0 || size > maxPiece {
		return 0, Malformed("a record of an event stream has an invalid length")
	}
	if len(data)-used < length {
		return 0, nil
	}
	used += length
	if e.left += int64(maxGain*used - size); e.left < 0 {
		return 0, Malformed("an event stream is much longer than its records")
	}
	copy(e.last[prefix+length:], e.last[e.n-suffix:e.n])
	copy(e.last[prefix:], data[used-length:used])
	e.n, e.read = size, 0
	return used, nil
}

// take copies bytes of the last decoded piece that were not returned yet.
func (e *pieces) take(p []byte) int {
	n := copy(p, e.last[e.read:e.n])
	e.read += n
	return n
}

// cutPiece returns the first piece of p: up to an empty line.
func cutPiece(p []byte) []byte {
	end := min(len(p), maxPiece)
	for i := minPiece; i < end; {
		k := bytes.IndexByte(p[i:end], '\n')
		if k < 0 {
			break
		}
		if i += k + 1; i < end && p[i] == '\r' {
			i++
		}
		if i < end && p[i] == '\n' {
			return p[:i+1]
		}
	}
	return p[:end]
}

// commonPrefix returns the number of equal bytes at the beginning of a and b.
func commonPrefix(a, b []byte) int {
	n, i := min(len(a), len(b)), 0
	for ; i+8 <= n; i += 8 {
		if d := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:]); d != 0 {
			return i + bits.TrailingZeros64(d)/8
		}
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

// commonSuffix returns the number of equal bytes at the end of a and b.
func commonSuffix(a, b []byte) int {
	n, i := min(len(a), len(b)), 0
	for ; i+8 <= n; i += 8 {
		d := binary.LittleEndian.Uint64(a[len(a)-i-8:]) ^ binary.LittleEndian.Uint64(b[len(b)-i-8:])
		if d != 0 {
			return i + bits.LeadingZeros64(d)/8
		}
	}
	for i < n && a[len(a)-1-i] == b[len(b)-1-i] {
		i++
	}
	return i
}

// readEvents is readBody for the transfer coding "events".
func (b *reader) readEvents(p []byte) (n int, err error) {
	for {
		if n += b.events.take(p[n:]); n == len(p) {
			return n, nil
		}
		if err := b.nextPiece(n == 0); err == errNotBuffered {
			return n, nil
		} else if err != nil {
			return n, err
		}
	}
}

// nextPiece decodes the next record. It returns io.EOF at the end of the message. If wait
// is false, it does not read from the stream, and returns errNotBuffered instead.
func (b *reader) nextPiece(wait bool) error {
	if b.left == 0 {
		if err := b.next(wait); err != nil {
			return err
		}
	}
	for {
		data := b.buffered()
		data = data[:min(int64(len(data)), b.left)]
		used, err := b.events.decode(data)
		switch {
		case err != nil:
			return err
		case used > 0:
			b.r += used
			b.left -= int64(used)
			return nil
		case int64(len(data)) == b.left:
			return Malformed("a chunk of an event stream ends within a record")
		case !wait:
			return errNotBuffered
		}
		if err := b.fill(); err != nil {
			return unexpectedEnd(err)
		}
	}
}
