package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/memory"
)

// maxBody bounds request bodies. The gateway's default limit is lower.
const maxBody = 64 << 20

// errLength is the fault of a body that does not have the length in its head.
var errLength = fmt.Errorf("%w: the body of a request does not have the length in its head", link.ErrInternal)

// upload is a request to an upstream. Its body is passed on while it arrives.
type upload struct {
	method    string
	asksClose bool // the head asks the upstream to close the connection
	body      io.Reader
	left      int64   // bytes of the body that were not read
	chunk     *[]byte // for pieces of the body
	first     []byte  // the head with the beginning of the body
	extra     [1]byte // see next
	reserved  memory.Reservation
	stop      func() // ends a read of the body
}

// open reads the beginning of a request of the tunnel: all of a body that fits into a chunk, or what has arrived of it.
// It reserves what the rest can take: a chunk, the decoder, and the window of the tunnel's stream, which fills if the
// upstream does not read. Its errors wrap a [link.Failure].
func (u *Server) open(budget *memory.Budget, r *http.Request, stop func()) (*upload, error) {
	if r.ContentLength < 0 {
		return nil, errLength
	}
	if r.ContentLength > maxBody {
		return nil, link.ErrTooLarge
	}
	up := &upload{
		method: r.Method, asksClose: !u.pool.keeps(), body: r.Body, left: r.ContentLength,
		reserved: budget.Open("", "", ""), stop: stop,
	}
	held := chunkBytes + min(up.left, link.MaxRequestWindow)
	if d, ok := r.Body.(interface{ DecoderMemory() int64 }); ok {
		held += d.DecoderMemory()
	}
	if up.reserved.Set(held) != nil {
		return nil, link.ErrBusy
	}
	up.chunk = chunks.Get().(*[]byte)
	defer func() {
		if up.first == nil { // after a panic, too
			up.release()
		}
	}()
	return up, up.begin(u, r)
}

// begin writes the head, and reads the beginning of the body.
func (up *upload) begin(u *Server, r *http.Request) error {
	header, target, out := requestHeader(r.Header), *r.URL, bytes.NewBuffer((*up.chunk)[:0])
	if u.key != nil {
		header["Authorization"] = []string{u.key.authorization()}
	}
	target.Path = u.prefix + target.Path
	fmt.Fprintf(out, "%s %s HTTP/1.1\r\nHost: %s\r\n", r.Method, target.RequestURI(), u.host)
	if up.asksClose {
		out.WriteString("Connection: close\r\n")
	}
	if up.left > 0 || r.Method != http.MethodGet && r.Method != http.MethodHead {
		fmt.Fprintf(out, "Content-Length: %d\r\n", up.left)
	}
	_ = header.Write(out)
	out.WriteString("\r\n")
	free := out.AvailableBuffer()
	free = free[:cap(free)]
	atLeast := min(len(free), 1)
	if up.left <= int64(len(free)) {
		atLeast = int(up.left)
	}
	n, err := up.next(free, atLeast)
	if err == nil {
		out.Write(free[:n])
		up.first = out.Bytes()
	}
	return err
}

// next reads the next bytes of the body, at least this many. It returns the last ones only if the body ends after them:
// no upstream gets all of a request whose body is too long or broken.
func (up *upload) next(b []byte, atLeast int) (int, error) {
	n, err := io.ReadAtLeast(up.body, b[:min(int64(len(b)), up.left)], atLeast)
	up.left -= int64(n)
	if err == nil && up.left == 0 {
		if _, err = io.ReadFull(up.body, up.extra[:]); err == io.EOF {
			return n, nil
		}
	} else if err == nil {
		return n, nil
	}
	switch {
	case err == nil, err == io.EOF, err == io.ErrUnexpectedEOF:
		err = errLength
	case !errors.As(err, new(*link.Failure)):
		err = link.ErrCancelled // the tunnel broke
	}
	return 0, err
}

// release gives back what the upload holds. Nothing may read the body afterwards.
func (up *upload) release() {
	if up.chunk != nil {
		chunks.Put(up.chunk)
		up.chunk = nil
	}
	up.reserved.Release()
}
