package upstream

import (
	"errors"
	"io"
	"math/bits"
	"sync"

	"github.com/postern-dev/postern/connector/memory"
)

// maxBody is the largest request body that is passed on. The gateway's own
// limit is lower by default; this one bounds the memory of the connector.
const maxBody = 64 << 20

// errTooLarge is for a request body over maxBody.
var errTooLarge = errors.New("the request body is larger than 64 MiB")

// Request bodies are held in memory before the upstream sees the first byte: a request
// that meets a closing connection can then be sent again. Buffers of 4 KiB to 4 MiB,
// each four times the one before, are reused; larger ones are rare.
const (
	smallestClass = 12 // 4 KiB
	classes       = 6
)

var bodies buffers

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

// room returns how many bytes a buffer for n bytes has.
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

// put takes back what get gave, or a slice that grew out of it.
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
	data *[]byte
	held memory.Reservation // for data
}

// readPayload reads body to its end, as far as budget has memory for it. A
// length of -1 means unknown. The error is errTooLarge, memory.ErrExceeded, or
// the reader's.
func readPayload(budget *memory.Budget, body io.Reader, length int64) (*payload, error) {
	if length > maxBody {
		return nil, errTooLarge
	}
	p := &payload{held: budget.Open("", "")}
	// One byte more than announced lets the end be seen without growing.
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
			return p, nil
		}
		if err != nil {
			p.release()
			return nil, err
		}
	}
}

// resize moves the data into a buffer for n bytes, if there is memory for it.
func (p *payload) resize(n int) error {
	if err := p.held.Set(int64(room(n))); err != nil {
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
