package blocks

import (
	"encoding/binary"
	"errors"
	"runtime"
	"sync"

	"github.com/klauspost/compress/zstd"
)

const (
	// Field is the header field with the length of an encoded body after decoding. It is
	// for the tunnel alone.
	Field = "Postern-Blocks"
	// MinBody is the smallest body that is worth encoding, in bytes.
	MinBody = 16 << 10
	// Memory is the maximum size of an [Encoder] or a [Decoder], in bytes.
	Memory = 2 * (pieceBytes + recordBytes)

	// pieceBytes is the maximum length of the decoded data of a piece.
	pieceBytes = 32 << 10
	// recordBytes is the maximum length of the records of a piece.
	recordBytes = 2 << 10
	// lengthBytes is the size of the lengths of a piece.
	lengthBytes = 12
)

var (
	// ErrUnknownBlock means that a body refers to a block that the connector does not have.
	ErrUnknownBlock = errors.New("the body refers to an unknown block")
	// ErrMalformed means that a body violates the format.
	ErrMalformed = errors.New("malformed encoding of a body")
)

// maxConcurrent returns how many pieces are compressed or decompressed at a time. Others wait. Each
// takes less than 1 MiB.
func maxConcurrent() int { return min(runtime.GOMAXPROCS(0), 8) }

// compressor and decompressor are shared by all bodies.
var (
	compressor = sync.OnceValue(func() *zstd.Encoder {
		return must(zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest),
			zstd.WithEncoderConcurrency(maxConcurrent()), zstd.WithWindowSize(pieceBytes),
			zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false)))
	})
	decompressor = sync.OnceValue(func() *zstd.Decoder {
		return must(zstd.NewReader(nil, zstd.WithDecoderConcurrency(maxConcurrent()), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(pieceBytes), zstd.WithDecodeAllCapLimit(true)))
	})
)

// must returns v. Only invalid options are errors.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// buffers are for the decoded data of a piece, or for a piece.
var buffers = sync.Pool{New: func() any { return new(buffer) }}

type buffer [lengthBytes + recordBytes + pieceBytes]byte

// lengths are the first bytes of a piece.
type lengths struct{ records, data, decoded int }

func (l lengths) put(b []byte) {
	binary.BigEndian.PutUint32(b, uint32(l.records))
	binary.BigEndian.PutUint32(b[4:], uint32(l.data))
	binary.BigEndian.PutUint32(b[8:], uint32(l.decoded))
}

// parseLengths returns the lengths of a piece. A piece has records, and its data does not
// grow by compression.
func parseLengths(b []byte) (lengths, error) {
	records, data, decoded := binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])
	if records == 0 || records > recordBytes || decoded > pieceBytes || data > decoded || data == 0 && decoded > 0 {
		return lengths{}, ErrMalformed
	}
	return lengths{int(records), int(data), int(decoded)}, nil
}
