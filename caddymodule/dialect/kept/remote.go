package kept

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// Limits of one request. A response comes with all items of its conversation that its gateway
// keeps, so usually one fetch from each gateway is enough.
const (
	maxFetches = 16
	fetchTime  = 10 * time.Second // for all fetches
)

var (
	errSize = errors.New("a kept response of another gateway does not have the announced size")
	errItem = errors.New("an item of a kept response of another gateway is not JSON")
)

// Peers are the other gateways of a cluster.
type Peers interface {
	// Fetch calls read with the response of an owner with this id, or with an item of this id. It
	// asks the gateway that the id names. It does not call read if the id names this gateway, or none.
	// If remove is set, the gateway removes the response.
	Fetch(ctx context.Context, owner Owner, id string, remove bool, read func(io.Reader) error) error
}

// Remote fetches the responses of other gateways for one request. It is not safe for concurrent use.
type Remote struct {
	ctx     context.Context
	peers   Peers
	reserve func(bytes int64) error

	fetches  int // questions
	deadline time.Time
	items    map[string]item // of the responses found so far
}

// NewRemote returns a Remote for a request with this context. reserve reserves memory until the
// request ends.
func NewRemote(ctx context.Context, peers Peers, reserve func(bytes int64) error) *Remote {
	return &Remote{ctx: ctx, peers: peers, reserve: reserve, items: make(map[string]item)}
}

// fetch calls Peers.Fetch within the limits, and reports whether there was a response.
func (r *Remote) fetch(owner Owner, id string, remove bool, read func(io.Reader) error) (found bool) {
	if r.fetches == 0 {
		r.deadline = time.Now().Add(fetchTime)
	}
	if r.fetches++; r.fetches > maxFetches {
		return false
	}
	ctx, cancel := context.WithDeadline(r.ctx, r.deadline)
	defer cancel()
	err := r.peers.Fetch(ctx, owner, id, remove, func(from io.Reader) error {
		err := read(from)
		found = err == nil
		return err
	})
	return found && err == nil
}

// response returns the response with this id, or with an item of this id.
func (r *Remote) response(owner Owner, id string) (Response, bool) {
	var found *Response
	ok := r.fetch(owner, id, false, func(from io.Reader) (err error) {
		found, err = decode(from, r.reserve)
		return err
	})
	if !ok {
		return Response{}, false
	}
	e := &entry{r: *found}
	for _, list := range [...][][]byte{found.Input, found.Output} {
		for _, raw := range list {
			if id := jsonscan.Text(raw, "id"); id != "" {
				r.items[id] = item{e, raw}
			}
		}
	}
	return *found, true
}

// item returns an item.
func (r *Remote) item(owner Owner, id string) (item, bool) {
	if _, ok := r.items[id]; !ok {
		r.response(owner, id)
	}
	i, ok := r.items[id]
	return i, ok
}

// remove removes a response at its gateway, and reports whether it was there.
func (r *Remote) remove(owner Owner, id string) bool {
	return r.fetch(owner, id, true, func(from io.Reader) error {
		_, err := decode(from, r.reserve)
		return err
	})
}

// Answer writes a response for another gateway, or nothing if it is not kept. If remove is set, it
// removes the response instead, and writes an empty one.
func (s *Store) Answer(out io.Writer, owner Owner, id string, remove bool) error {
	switch e := s.lookup(ref{owner, id}, remove); {
	case e == nil:
		return nil
	case remove:
		return encode(out, Response{})
	default:
		return encode(out, e.r)
	}
}

// lookup returns a kept response, or nil, and removes it if remove is set.
func (s *Store) lookup(at ref, remove bool) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	e := s.responses[at]
	if e == nil {
		e = s.items[at].entry
	}
	if e != nil && remove {
		s.remove(e)
	}
	return e
}

// encode writes a response: its size, and for each part, its length and its bytes. The size is
// that of [Response.Size], which bounds the lengths and the number of the parts.
func encode(out io.Writer, r Response) error {
	w := bufio.NewWriter(out)
	number := func(n int) {
		_, _ = w.Write(binary.AppendUvarint(w.AvailableBuffer(), uint64(n)))
	}
	number(int(r.Size()))
	for _, list := range [...][][]byte{{[]byte(r.Model), r.Body}, r.Input, r.Output} {
		number(len(list))
		for _, part := range list {
			number(len(part))
			_, _ = w.Write(part)
		}
	}
	return w.Flush()
}

// decode reads a response that encode has written. It fails if the input is empty. reserve
// reserves the memory.
func decode(source io.Reader, reserve func(bytes int64) error) (*Response, error) {
	reader := bufio.NewReader(source)
	size, err := binary.ReadUvarint(reader)
	if err != nil {
		return nil, err
	}
	if size > MaxBytes {
		return nil, errSize
	}
	if err := reserve(int64(size)); err != nil {
		return nil, err
	}
	d := decoder{reader: reader, left: size}
	head, input, output := d.list(), d.list(), d.list()
	if d.err == nil && len(head) != 2 {
		d.err = errSize
	}
	if invalid := func(item []byte) bool { return !jsonscan.Valid(item) }; d.err == nil &&
		(slices.ContainsFunc(input, invalid) || slices.ContainsFunc(output, invalid)) {
		d.err = errItem // requests read items without checking them again
	}
	if d.err != nil {
		return nil, d.err
	}
	return &Response{Model: string(head[0]), Body: head[1], Input: input, Output: output}, nil
}

// decoder reads lists of parts. After an error it returns nothing.
type decoder struct {
	reader *bufio.Reader
	left   uint64 // bytes of memory that the parts may take
	err    error
}

// number reads a number of parts that take at least size bytes of memory each.
func (d *decoder) number(size uint64) (n uint64) {
	if d.err != nil {
		return 0
	}
	if n, d.err = binary.ReadUvarint(d.reader); d.err == nil && n > d.left/size {
		d.err = errSize
	}
	if d.err != nil {
		if d.err == io.EOF {
			d.err = io.ErrUnexpectedEOF
		}
		return 0
	}
	d.left -= n * size
	return n
}

// list reads a list of parts.
func (d *decoder) list() [][]byte {
	const header = 24 // of a slice, which the overheads in the size cover
	parts := make([][]byte, d.number(header))
	for i := range parts {
		parts[i] = make([]byte, d.number(1))
		if d.err == nil {
			_, d.err = io.ReadFull(d.reader, parts[i])
		}
	}
	return parts
}
