package upstream

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

// uploadGrace is how long the answer to a large body waits for the end of the upload:
// the upstream can answer before the writer has woken up. An answer that is still
// earlier costs the connection.
const uploadGrace = 5 * time.Millisecond

// errUnasked is for an answer to an idle connection, like a 408 before it is closed.
var errUnasked = errors.New("the upstream answered before it was asked")

// answer is the exchange of one request, from its first byte to the end of the answer.
type answer struct {
	upstream *Server
	conn     *connection // nil after Close
	unwatch  func() bool // stops the watch on the request's context
	uploaded chan int64  // bytes sent of a large request; nil: it is small
	size     int64       // of the request in bytes
	sent     int64       // how many of them left; -1: not known yet

	status int
	header http.Header
	err    error // what Read returns after Close
}

// send writes the request. A small one goes out in one write; the body of a
// large one is sent by another goroutine, since the upstream may answer before
// it has read it all.
func (a *answer) send(r *http.Request, body *payload) error {
	chunk := chunks.Get().(*[]byte)
	data := *body.data
	head, err := link.AppendRequest((*chunk)[:0], r, int64(len(data)), notForUpstream)
	if err != nil {
		chunks.Put(chunk)
		return err
	}
	a.size = int64(len(head) + len(data))
	if len(head)+len(data) > len(*chunk) {
		a.uploaded, a.sent = make(chan int64, 1), -1
		go a.upload(a.conn, a.uploaded, head, chunk, data)
		return nil
	}
	n, err := a.conn.Write(append(head, data...))
	chunks.Put(chunk)
	if a.sent = int64(n); n > 0 {
		// The upstream may have stopped reading to answer: Next finds out.
		err = nil
	}
	return err
}

// failed waits until a large request is given up, which is soon after its
// connection was closed, and adds [ErrNotConnected] if nothing was sent.
func (a *answer) failed(err error) error {
	if a.sent < 0 {
		a.sent = <-a.uploaded
	}
	if a.size > 0 && a.sent == 0 {
		return fmt.Errorf("%w: %w", ErrNotConnected, err)
	}
	return err
}

// upload writes a large request. It ends soon after the connection is closed.
func (a *answer) upload(c *connection, uploaded chan<- int64, head []byte, chunk *[]byte, data []byte) {
	pieces := net.Buffers{head, data}
	n, _ := pieces.WriteTo(c.Conn) // one system call, if it is not TLS
	chunks.Put(chunk)
	uploaded <- n
}

// settle finds out, when the answer begins, whether the request is all sent. It fails
// if nothing was: then this is not the answer to it.
func (a *answer) settle() error {
	if a.uploaded == nil {
		return nil
	}
	select {
	case a.sent = <-a.uploaded:
	default:
		grace := time.NewTimer(uploadGrace)
		defer grace.Stop()
		select {
		case a.sent = <-a.uploaded:
		case <-grace.C:
		}
	}
	if a.sent == 0 {
		return errUnasked
	}
	return nil
}

// Read reads the available bytes of the answer's body. io.EOF is the end of a complete
// answer, and may come with its last bytes; the connection is free for the next
// request then.
func (a *answer) Read(b []byte) (int, error) {
	if a.conn == nil {
		return 0, a.err
	}
	n, err := a.conn.in.Read(b)
	if err != nil {
		a.err = err
		_ = a.Close()
	}
	return n, err
}

// isSilent reports whether it is an event stream of which nothing has come but
// its head.
func (a *answer) isSilent() bool {
	return a.conn != nil && !a.conn.in.Buffered() &&
		link.HasMediaType(a.header, "text/event-stream")
}

// Close gives the connection back if it can be used again, and closes it
// otherwise. Then the request's body is no longer read. It may be called twice.
func (a *answer) Close() error {
	c := a.conn
	if c == nil {
		return nil
	}
	a.conn = nil
	live := a.unwatch()
	reusable := live && a.sent == a.size && c.in.Reusable()
	c.in.Release()
	if reusable {
		a.upstream.idle.put(c)
		return nil
	}
	c.shut()
	if a.sent < 0 {
		a.sent = <-a.uploaded
	}
	return nil
}
