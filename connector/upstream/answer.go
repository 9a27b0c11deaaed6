package upstream

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

// uploadGrace is how long an answer waits for the end of a large upload, as the upstream
// can answer before the writer has returned. If the upload takes longer, the connection is
// not reused.
const uploadGrace = 5 * time.Millisecond

// errUnasked is returned for an answer on an idle connection, like a 408 before its close.
var errUnasked = errors.New("the upstream answered before the request")

// answer is the exchange of one request, from its first byte to the end of the answer.
type answer struct {
	upstream *Server
	conn     *connection // nil after Close
	unwatch  func() bool // stops watching the request's context
	uploaded chan int64  // receives the sent bytes of a large request; nil: small request
	size     int64       // of the request in bytes
	sent     int64       // sent bytes; -1: unknown

	status int
	header http.Header
	err    error // what Read returns after Close
}

// send writes the request. A small one takes one write. Another goroutine sends a large
// one, as the upstream may answer before it has read all of it.
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
		// The upstream may have stopped reading to answer early.
		err = nil
	}
	return err
}

// failed waits for the upload to end, which it does soon after its connection was closed,
// and adds [ErrNotConnected] if nothing was sent.
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
	n, _ := pieces.WriteTo(c.Conn) // one system call without TLS
	chunks.Put(chunk)
	uploaded <- n
}

// settle checks at the beginning of the answer whether the request was sent. It fails if
// nothing was, as the answer is then for something else.
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

// Read reads available bytes of the answer's body. It returns io.EOF at the end of a
// complete answer, possibly with the last bytes, and then releases the connection.
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

// isSilent reports whether the answer is an event stream without any event yet.
func (a *answer) isSilent() bool {
	return a.conn != nil && !a.conn.in.Buffered() && a.isStream()
}

func (a *answer) isStream() bool { return link.HasMediaType(a.header, "text/event-stream") }

// Close releases the connection if it is reusable, and closes it otherwise. The request's
// body is no longer read afterwards. Close may be called twice.
func (a *answer) Close() error {
	c := a.conn
	if c == nil {
		return nil
	}
	a.conn = nil
	live := a.unwatch()
	// llama.cpp closes the connection after a stream, although it announces keep-alive. The
	// next request could leave before the close arrives, and must not be sent twice.
	reusable := live && a.sent == a.size && c.in.Reusable() && !a.isStream()
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
