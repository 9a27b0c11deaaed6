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

// Limits of the questions of one request. An answer has all items of a conversation that its
// gateway keeps, so one question to each gateway is usual.
const (
	maxQuestions = 16
	questionTime = 10 * time.Second // for all of them
)

var (
	errSize = errors.New("a kept response of another gateway has not the announced size")
	errItem = errors.New("an item of a kept response of another gateway is not JSON")
)

// Peers are the other gateways of a cluster.
type Peers interface {
	// Fetch has read read the response of an owner with this id, or with an item of this id, at the
	// gateway that the id names. It does not call read if that is this one, or none. If remove is
	// set, the response is removed.
	Fetch(ctx context.Context, owner Owner, id string, remove bool, read func(io.Reader) error) error
}

// Remote looks for the responses of other gateways, for one request. It is not safe for concurrent
// use.
type Remote struct {
	ctx   context.Context
	peers Peers
	hold  func(bytes int64) error

	asked int // questions
	until time.Time
	items map[string]item // of the responses found so far
}

// NewRemote returns a Remote for a request with this context. hold reserves memory until its end.
func NewRemote(ctx context.Context, peers Peers, hold func(bytes int64) error) *Remote {
	return &Remote{ctx: ctx, peers: peers, hold: hold, items: make(map[string]item)}
}

// ask asks a peer, and reports whether it has an answer.
func (r *Remote) ask(owner Owner, id string, remove bool, read func(io.Reader) error) (found bool) {
	if r.asked == 0 {
		r.until = time.Now().Add(questionTime)
	}
	if r.asked++; r.asked > maxQuestions {
		return false
	}
	ctx, cancel := context.WithDeadline(r.ctx, r.until)
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
	ok := r.ask(owner, id, false, func(from io.Reader) (err error) {
		found, err = decode(from, r.hold)
		return err
	})
	if !ok {
		return Response{}, false
	}
	in := &entry{r: *found}
	for _, list := range [...][][]byte{found.Input, found.Output} {
		for _, raw := range list {
			if id := jsonscan.Text(raw, "id"); id != "" {
				r.items[id] = item{in, raw}
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

// remove removes a response at its gateway, and reports whether it has.
func (r *Remote) remove(owner Owner, id string) bool {
	return r.ask(owner, id, true, func(from io.Reader) error {
		_, err := decode(from, r.hold)
		return err
	})
}

// Answer answers the question of another gateway for a response, with nothing if it is not kept.
// If remove is set, it removes the response.
func (s *Store) Answer(to io.Writer, owner Owner, id string, remove bool) error {
	switch e := s.asked(ref{owner, id}, remove); {
	case e == nil:
		return nil
	case remove:
		return encode(to, Response{})
	default:
		return encode(to, e.r)
	}
}

// asked returns a kept response, or nil, and removes it if remove is set.
func (s *Store) asked(at ref, remove bool) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	e := s.responses[at]
	if e == nil {
		e = s.items[at].in
	}
	if e != nil && remove {
		s.remove(e)
	}
	return e
}

// encode writes a response: its size, and for each part, its length and its bytes. The size is
// that of [Response.Size], which bounds the lengths and the number of the parts.
func encode(to io.Writer, r Response) error {
	w := bufio.NewWriter(to)
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

// decode reads what encode has written, and fails if that is nothing. hold reserves the memory.
func decode(from io.Reader, hold func(bytes int64) error) (*Response, error) {
	in := bufio.NewReader(from)
	size, err := binary.ReadUvarint(in)
	if err != nil {
		return nil, err
	}
	if size > MaxBytes {
		return nil, errSize
	}
	if err := hold(int64(size)); err != nil {
		return nil, err
	}
	d := decoder{in: in, left: size}
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
	in   *bufio.Reader
	left uint64 // bytes of memory that the parts may take
	err  error
}

// number reads a number whose each unit takes so many bytes of memory.
func (d *decoder) number(bytes uint64) (n uint64) {
	if d.err != nil {
		return 0
	}
	if n, d.err = binary.ReadUvarint(d.in); d.err == nil && n > d.left/bytes {
		d.err = errSize
	}
	if d.err != nil {
		if d.err == io.EOF {
			d.err = io.ErrUnexpectedEOF
		}
		return 0
	}
	d.left -= n * bytes
	return n
}

// list reads a list of parts.
func (d *decoder) list() [][]byte {
	const header = 24 // of a slice, which the overheads in the size cover
	parts := make([][]byte, d.number(header))
	for i := range parts {
		parts[i] = make([]byte, d.number(1))
		if d.err == nil {
			_, d.err = io.ReadFull(d.in, parts[i])
		}
	}
	return parts
}
