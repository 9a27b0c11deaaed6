package bodies

import (
	"bytes"
	"encoding/json"
	"hash/crc32"
	"io"
	"maps"
	"net/http"
	"runtime"
	"sync"

	"github.com/klauspost/compress/zstd"
)

const (
	// Field is the header field that describes an encoded body. It is for the tunnel alone.
	Field = "Postern-Body"
	// MinBody is the smallest body that is worth encoding, in bytes.
	MinBody = 16 << 10
	// Memory is the maximum size of an encoder in bytes, without the bodies that the tunnel keeps.
	Memory = frameBytes + maxFrame

	frameBytes = 64 << 10           // in a frame, before compression
	maxFrame   = frameBytes + 1<<10 // bytes of a frame
	maxRest    = 4 << 10            // bytes of a body that may be missing in the one that replaces it
)

// head is the value of [Field].
type head struct {
	Length int64  `json:"length"`           // of the decoded body
	Number uint64 `json:"number,omitempty"` // under which the connector keeps the body; 0: it does not
	Base   *base  `json:"base,omitempty"`   // nil: the body is sent whole
}

// base is the body with which another one begins and ends.
type base struct {
	Number uint64 `json:"number"`
	Length int64  `json:"length"`
	CRC32C uint32 `json:"crc32c"`
	Begin  int64  `json:"begin"` // length of the common beginning
	End    int64  `json:"end"`   // and of the common end
}

func checksum(p []byte) uint32 { return crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)) }

// Sent is a request with an encoded body.
type Sent struct {
	*http.Request
	original *http.Request
	key      string
	body     *body // nil: it is not kept
	base     *body // body replaces it, as it contains almost all of it; nil: none
	refers   bool  // the encoded body refers to a base
}

// Encode encodes the body of a request. If there is a key, the tunnel keeps the body for later requests with the same
// key. [Sent.End] must be called.
func Encode(r *http.Request, t *Tunnel, key string) *Sent {
	s, h := &Sent{original: r, key: key}, head{Length: r.ContentLength}
	if t == nil || key == "" {
		return s.encode(h, r.Body)
	}
	earlier := t.find(maxKept, s.sameKey) // before the new one displaces them
	if s.body = t.open(key, 0, r.ContentLength); s.body == nil {
		return s.encode(h, r.Body)
	}
	p := s.body.bytes
	if n, err := io.ReadFull(r.Body, p); err != nil {
		s.End(false)
		s.body = nil
		return s.encode(h, io.MultiReader(bytes.NewReader(p[:n]), r.Body)) // which returns the error again
	}
	h.Number = s.body.number
	begin, end := s.choose(earlier)
	if b := s.base; b != nil {
		h.Base = &base{b.number, int64(len(b.bytes)), checksum(b.bytes), int64(begin), int64(end)}
		if s.refers = true; len(b.bytes)-begin-end > maxRest {
			s.base = nil // the cache alone holds it: it may be long, and the request may run for minutes
		}
	}
	return s.encode(h, bytes.NewReader(p[begin:len(p)-end]))
}

// Refers reports whether the encoded body refers to another one.
func (s *Sent) Refers() bool { return s.refers }

// Whole encodes the body again without a base, which the connector does not keep. It drops all bodies of the key: the
// connector may keep none of them.
func (s *Sent) Whole() *Sent {
	s.base, s.refers = nil, false
	s.body.tunnel.find(0, s.sameKey)
	h := head{Length: int64(len(s.body.bytes)), Number: s.body.number}
	return s.encode(h, bytes.NewReader(s.body.bytes))
}

// End ends the request. If its answer has begun, later requests can refer to the body. It replaces a base that it
// almost contains.
func (s *Sent) End(answered bool) {
	if s.body != nil {
		s.body.end(answered, s.base)
		s.body.tunnel.find(maxKept, s.sameKey)
	}
}

func (s *Sent) sameKey(b *body) bool { return b.key == s.key }

func (s *Sent) encode(h head, from io.Reader) *Sent {
	r := *s.original
	r.Header = maps.Clone(r.Header)
	text, _ := json.Marshal(h) // it cannot fail
	r.Header[Field] = []string{string(text)}
	r.Body, r.ContentLength = &encoder{from: from, Closer: s.original.Body}, -1
	s.Request = &r
	return s
}

// choose sets the base to the body with the longest common beginning, and returns the lengths of the common beginning
// and end.
func (s *Sent) choose(earlier []*body) (begin, end int) {
	for _, b := range earlier {
		if n := common(b.bytes, s.body.bytes); s.base == nil || n > begin {
			s.base, begin = b, n
		}
	}
	if s.base == nil {
		return 0, 0
	}
	s.body.tunnel.use(s.base)
	old, rest := s.base.bytes[begin:], s.body.bytes[begin:]
	for end < min(len(old), len(rest)) && old[len(old)-1-end] == rest[len(rest)-1-end] {
		end++
	}
	return begin, end
}

// common returns the length of the common beginning of two bodies.
func common(a, b []byte) (n int) {
	const step = 4 << 10
	shorter := min(len(a), len(b))
	for n+step <= shorter && bytes.Equal(a[n:n+step], b[n:n+step]) {
		n += step
	}
	for n < shorter && a[n] == b[n] {
		n++
	}
	return n
}

// compressor is shared by all bodies.
var compressor = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(frameBytes),
		zstd.WithEncoderConcurrency(min(runtime.GOMAXPROCS(0), 8)), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic(err) // the options are constant
	}
	return e
})

// encoder compresses a body while it is read, as frames that do not depend on each other: while it waits for a slow
// tunnel, it keeps no state.
type encoder struct {
	io.Closer
	from       io.Reader
	raw, frame []byte
	unread     []byte // of frame
}

// Read implements io.Reader.
func (e *encoder) Read(p []byte) (int, error) {
	for len(e.unread) == 0 {
		if e.raw == nil {
			e.raw, e.frame = make([]byte, frameBytes), make([]byte, 0, maxFrame)
		}
		n, err := io.ReadFull(e.from, e.raw)
		if n == 0 {
			return 0, err
		}
		e.frame = compressor().EncodeAll(e.raw[:n], e.frame[:0])
		e.unread = e.frame
	}
	n := copy(p, e.unread)
	e.unread = e.unread[n:]
	return n, nil
}
