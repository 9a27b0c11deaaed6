package upstream

import (
	"errors"
	"io"

	"github.com/postern-dev/postern/connector/memory"
)

// maxBody bounds request bodies, and so the memory of the connector. The gateway's default
// limit is lower.
const maxBody = 64 << 20

// firstSize is the first size of the buffer for a body of unknown length.
const firstSize = 16 << 10

// errTooLarge is returned for a request body over maxBody.
var errTooLarge = errors.New("the request body is larger than 64 MiB")

// payload is a request body in memory. It is read to its end before a model server sees a
// byte of the request: until then, the gateway can send the request again.
type payload struct {
	data     []byte
	reserved memory.Reservation // for data and decoder
	decoder  int64              // memory for decoding the rest of the body, in bytes
}

// readPayload reads body to its end, within budget. A length of -1 means unknown. The error is
// errTooLarge, memory.ErrExceeded, or an error of the reader.
func readPayload(budget *memory.Budget, body io.Reader, length int64) (*payload, error) {
	if length > maxBody {
		return nil, errTooLarge
	}
	p := &payload{reserved: budget.Open("", "", "")}
	if d, ok := body.(interface{ DecoderMemory() int64 }); ok {
		p.decoder = d.DecoderMemory()
	}
	size := firstSize
	if length >= 0 {
		size = int(length) + 1 // the last read, of no bytes, needs space for one
	}
	if err := p.fill(body, size); err != nil {
		p.release()
		return nil, err
	}
	p.decoder = 0
	_ = p.reserved.Set(int64(cap(p.data))) // shrinking always succeeds
	return p, nil
}

// fill reads body to its end, into a buffer of size bytes that grows if necessary.
func (p *payload) fill(body io.Reader, size int) error {
	for {
		if len(p.data) == cap(p.data) {
			if err := p.reserved.Set(int64(size) + p.decoder); err != nil {
				return err
			}
			p.data = append(make([]byte, 0, size), p.data...)
			size = min(4*size, maxBody+1)
		}
		n, err := body.Read(p.data[len(p.data):cap(p.data)])
		p.data = p.data[:len(p.data)+n]
		switch {
		case len(p.data) > maxBody:
			return errTooLarge
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

func (p *payload) release() { p.reserved.Release() }
