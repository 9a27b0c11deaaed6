package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/link/blocks"
	"github.com/postern-dev/postern/connector/memory"
)

// maxBody bounds request bodies. The gateway's default limit is lower.
const maxBody = 64 << 20

// The faults of a request's body.
var (
	errTooLarge = errors.New("the request body is larger than 64 MiB")
	errNoLength = errors.New("the length of the request body is unknown")
	errLength   = errors.New("the request body does not have the length that its head tells")

	// errBroken wraps a fault after the upstream has got a part of the request.
	errBroken = errors.New("the request broke off")
)

// upload is a request to an upstream. Its body is passed on while it arrives.
type upload struct {
	head     *http.Request
	body     io.Reader
	left     int64   // bytes of the body that were not read
	chunk    *[]byte // for pieces of the body
	first    []byte  // the head with the beginning of the body
	extra    [1]byte // see next
	reserved memory.Reservation
	stop     func() // ends a waiting read of the body
}

// open reads the beginning of a request of the tunnel: what has arrived of a large body, and all of one that fits into
// a chunk with the head. It reserves what the rest can take: a chunk, the decoder, and the window of the tunnel's
// stream, which fills if the upstream does not read. roundTrip releases it.
func (u *Server) open(budget *memory.Budget, r *http.Request, stop func()) (*upload, error) {
	if r.ContentLength < 0 {
		return nil, errNoLength
	}
	if r.ContentLength > maxBody {
		return nil, errTooLarge
	}
	up := &upload{
		head: u.request(r), body: r.Body, left: r.ContentLength, reserved: budget.Open("", "", ""), stop: stop,
	}
	held := chunkBytes + min(up.left, link.MaxRequestWindow)
	if d, ok := r.Body.(interface{ DecoderMemory() int64 }); ok {
		held += d.DecoderMemory()
	}
	if err := up.reserved.Set(held); err != nil {
		return nil, err
	}
	up.chunk = chunks.Get().(*[]byte)
	err := up.readWhole()
	if err == nil {
		err = up.begin()
	}
	if err != nil {
		up.release()
		return nil, err
	}
	return up, nil
}

// begin writes the head and reads the beginning of the body.
func (up *upload) begin() error {
	out, r := bytes.NewBuffer((*up.chunk)[:0]), up.head
	fmt.Fprintf(out, "%s %s HTTP/1.1\r\nHost: %s\r\n", r.Method, r.URL.RequestURI(), r.Host)
	if up.left > 0 || r.Method != http.MethodGet && r.Method != http.MethodHead {
		fmt.Fprintf(out, "Content-Length: %d\r\n", up.left)
	}
	if r.Close {
		out.WriteString("Connection: close\r\n")
	}
	_ = r.Header.Write(out)
	out.WriteString("\r\n")
	free := out.AvailableBuffer()
	free = free[:cap(free)]
	least := min(len(free), 1)
	if up.left <= int64(len(free)) {
		least = int(up.left)
	}
	n, err := up.next(free, least)
	out.Write(free[:n])
	up.first = out.Bytes()
	return err
}

// next reads the next bytes of the body, at least this many. The last ones are an error unless the body ends there:
// no upstream gets all of a request whose body is longer or broken.
func (up *upload) next(b []byte, least int) (int, error) {
	n, err := io.ReadAtLeast(up.body, b[:min(int64(len(b)), up.left)], least)
	if up.left -= int64(n); err == nil && up.left == 0 {
		if _, err = io.ReadFull(up.body, up.extra[:]); err == nil {
			return 0, errLength
		}
		if err == io.EOF {
			return n, nil
		}
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = errLength
	}
	return n, err
}

// release gives back what the upload holds. Nothing may read the body afterwards.
func (up *upload) release() {
	if up.chunk != nil {
		chunks.Put(up.chunk)
		up.chunk = nil
	}
	up.reserved.Release()
}

// failureOf returns the failure for a fault of the body.
func failureOf(fault error) *link.Failure {
	switch {
	case errors.Is(fault, errTooLarge):
		return link.ErrTooLarge
	case errors.Is(fault, memory.ErrExceeded):
		return link.ErrBusy
	case errors.Is(fault, errNoLength), errors.Is(fault, errLength), errors.Is(fault, blocks.ErrMalformed):
		return link.ErrInternal
	case errors.Is(fault, blocks.ErrUnknownBlock):
		return link.ErrUnknownBlock // the gateway sends it again
	}
	return link.ErrCancelled // the tunnel broke
}
