package upstream

import (
	"errors"
	"io"
	"math/bits"
	"sync"

	"github.com/postern-dev/postern/connector/memory"
)

// maxBody bounds request bodies, and so the memory of the connector. The gateway's default
// limit is lower.
const maxBody = 64 << 20

// errTooLarge is returned for a request body over maxBody.
var errTooLarge = errors.New("the request body is larger than 64 MiB")

// Request bodies are buffered before they are sent, so that a request on a closing
// connection can be repeated. Buffers of 4 KiB to 4 MiB, in steps of a factor of four, are
// reused. Larger ones are rare.
const (
	smallestClass = 12 // 4 KiB
	classes       = 6
)

var bodies buffers

// buffers are pools of byte slices by size.
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

// room returns the capacity of a buffer for n bytes.
func room(n int) int {
	if c := class(n); c >= 0 {
		return 1 << (smallestClass + 2*c)
	}
	return n
}

// get returns a slice of length 0 with room for at least n bytes.
func (b *buffers) get(n int) *[]byte {
	if c := class(n); c >= 0 {
		if data, ok := b.pools[c].Get().(*[]byte); ok {
			return data
		}
	}
	data := make([]byte, 0, room(n))
	return &data
}

// put returns a slice from get to its pool.
func (b *buffers) put(data *[]byte) {
	c := class(cap(*data))
	if c < 0 || cap(*data) != 1<<(smallestClass+2*c) {
		return
	}
	*data = (*data)[:0]
	b.pools[c].Put(data)
}

// payload is a request body in memory.
type payload struct {
	data    *[]byte
	held    memory.Reservation // for data and decoder
	decoder int64              // bytes held to decode the rest of the body
}

// readPayload reads body to its end, within budget. A length of -1 is unknown. The error is
// errTooLarge, memory.ErrExceeded, or that of the reader.
func readPayload(budget *memory.Budget, body io.Reader, length int64) (*payload, error) {
	if length > maxBody {
		return nil, errTooLarge
	}
	p := &payload{held: budget.Open("", "", "")}
	if d, ok := body.(interface{ DecoderMemory() int64 }); ok {
		p.decoder = d.DecoderMemory()
	}
	// One more byte lets the end be read without growing.
	if err := p.resize(int(max(length, 0)) + 1); err != nil {
		return nil, err
	}
	for {
		data := *p.data
		if len(data) == cap(data) {
			if err := p.resize(min(4*cap(data), maxBody+1)); err != nil {
				p.release()
				return nil, err
			}
			continue
		}
		n, err := body.Read(data[len(data):cap(data)])
		*p.data = data[:len(data)+n]
		if len(*p.data) > maxBody {
			p.release()
			return nil, errTooLarge
		}
		if err == io.EOF {
			p.decoder = 0
			_ = p.held.Set(int64(cap(*p.data))) // shrinking always succeeds
			return p, nil
		}
		if err != nil {
			p.release()
			return nil, err
		}
	}
}

// resize moves the data into a buffer for n bytes, within the budget.
func (p *payload) resize(n int) error {
	if err := p.held.Set(int64(room(n)) + p.decoder); err != nil {
		return err
	}
	larger := bodies.get(n)
	if p.data != nil {
		*larger = append(*larger, *p.data...)
		bodies.put(p.data)
	}
	p.data = larger
	return nil
}

func (p *payload) release() {
	bodies.put(p.data)
	p.held.Release()
}
