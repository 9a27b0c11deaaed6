package agent

import (
	"bytes"
	"errors"
	"io"
	"math/bits"
	"sync"
	"sync/atomic"
)

// maxBody is the largest request body that is passed on. The gateway's own
// limit is lower by default; this one bounds the memory of the connector.
const maxBody = 64 << 20

// errTooLarge says that a request body is over maxBody.
var errTooLarge = errors.New("the request body is larger than 64 MiB")

// errBodyClosed is what a reader gets that goes on after its Close.
var errBodyClosed = errors.New("reading a closed request body")

// Request bodies are held in memory before the upstream sees the first byte:
// a transport that still reads a body when the answer begins would otherwise
// lose it and, with it, the upstream connection. Buffers of 4 KiB to 4 MiB,
// each four times the one before, are reused; larger ones are rare.
const (
	smallestClass = 12 // 4 KiB
	classes       = 6
)

// buffers is a set of reusable byte slices by size.
type buffers struct {
	pools [classes]sync.Pool // of *[]byte
}

// class returns the pool for n bytes, or -1 if n is above all of them.
func class(n int) int {
	if n <= 1<<smallestClass {
		return 0
	}
	c := (bits.Len(uint(n-1)) - smallestClass + 1) / 2
	if c >= classes {
		return -1
	}
	return c
}

// get returns a slice of length 0 with room for at least n bytes.
func (b *buffers) get(n int) *[]byte {
	c := class(n)
	if c < 0 {
		data := make([]byte, 0, n)
		return &data
	}
	if data, ok := b.pools[c].Get().(*[]byte); ok {
		return data
	}
	data := make([]byte, 0, 1<<(smallestClass+2*c))
	return &data
}

// put takes back what get gave, or a slice that grew out of it.
func (b *buffers) put(data *[]byte) {
	c := class(cap(*data))
	if c < 0 || cap(*data) != 1<<(smallestClass+2*c) {
		return
	}
	*data = (*data)[:0]
	b.pools[c].Put(data)
}

// small is up to which size a body is left to the garbage collector, in bytes.
// net/http sends a body of a plain bytes.Reader with the header in one write,
// and any other in a write of its own, which costs more than the buffer.
const small = 64 << 10

// payload is a request body in memory. Its buffer goes back when the handler
// and every reader that it gave out are done: net/http may read and close a
// body after RoundTrip has returned.
type payload struct {
	pool *buffers // nil: the buffer is not for reuse
	data *[]byte
	refs atomic.Int32
}

// readPayload reads body to its end. A length of -1 means unknown. The error is
// errTooLarge, or the reader's.
func readPayload(pool *buffers, body io.Reader, length int64) (*payload, error) {
	if length > maxBody {
		return nil, errTooLarge
	}
	// One byte more than announced lets the end be seen without growing.
	p := &payload{}
	if size := int(length) + 1; length >= 0 && length <= small {
		data := make([]byte, 0, size)
		p.data = &data
	} else {
		p.pool, p.data = pool, pool.get(max(size, 1))
	}
	p.refs.Store(1)
	for {
		data := *p.data
		if len(data) == cap(data) {
			p.grow(pool)
			continue
		}
		n, err := body.Read(data[len(data):cap(data)])
		*p.data = data[:len(data)+n]
		if len(*p.data) > maxBody {
			p.release()
			return nil, errTooLarge
		}
		if err == io.EOF {
			return p, nil
		}
		if err != nil {
			p.release()
			return nil, err
		}
	}
}

// grow moves the data into the next larger buffer.
func (p *payload) grow(pool *buffers) {
	larger := pool.get(min(4*cap(*p.data), maxBody+1))
	*larger = append(*larger, *p.data...)
	p.recycle()
	p.pool, p.data = pool, larger
}

// open returns a new reader of the whole body.
func (p *payload) open() io.ReadCloser {
	if p.pool == nil {
		return io.NopCloser(bytes.NewReader(*p.data))
	}
	p.refs.Add(1)
	return &payloadReader{payload: p, rest: *p.data}
}

// release gives up one reference.
func (p *payload) release() {
	if p.refs.Add(-1) == 0 {
		p.recycle()
	}
}

// recycle gives the buffer back, if it is for reuse.
func (p *payload) recycle() {
	if p.pool != nil {
		p.pool.put(p.data)
	}
}

// payloadReader reads a payload. Close may come from another goroutine than
// Read, and wins: after it the buffer may belong to another request.
type payloadReader struct {
	mu      sync.Mutex
	payload *payload // nil once closed
	rest    []byte
}

func (r *payloadReader) Read(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.payload == nil {
		return 0, errBodyClosed
	}
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *payloadReader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.payload != nil {
		p := r.payload
		r.payload, r.rest = nil, nil
		p.release()
	}
	return nil
}

// readUpTo fills b from r and accepts an end before it is full.
func readUpTo(r io.Reader, b []byte) (int, error) {
	n, err := io.ReadFull(r, b)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = nil
	}
	return n, err
}
