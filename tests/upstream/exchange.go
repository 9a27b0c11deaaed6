package upstream

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// An Exchange is a request being answered. Its methods write to the
// connection at once; after the client has left they do nothing.
type Exchange struct {
	Request Request

	conn net.Conn
	ctx  context.Context
	left atomic.Bool // the client closed the connection
	dead bool        // the handler closed the connection
}

// Gone is closed when the client has closed the connection.
func (x *Exchange) Gone() <-chan struct{} { return x.ctx.Done() }

// Left tells whether the client has closed the connection.
func (x *Exchange) Left() bool { return x.left.Load() }

// Write sends bytes as they are, in one write.
func (x *Exchange) Write(s string) {
	if !x.dead && !x.Left() {
		_, _ = io.WriteString(x.conn, s) // a client that left is noticed by the reader
	}
}

// Sleep waits, but not for a client that has left.
func (x *Exchange) Sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-x.Gone():
	}
}

// Hold waits until the client has left or the channel is closed.
func (x *Exchange) Hold(release <-chan struct{}) {
	select {
	case <-release:
	case <-x.Gone():
	}
}

// Head sends a status line and headers, "Name: value" each.
func (x *Exchange) Head(status int, headers ...string) {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	x.Write(b.String() + "\r\n")
}

// Stream sends the headers of a streamed answer, chunked.
func (x *Exchange) Stream() {
	x.Head(http.StatusOK, "Content-Type: text/event-stream", "Transfer-Encoding: chunked")
}

// Chunk sends one chunk, in one write.
func (x *Exchange) Chunk(s string) {
	x.Write(fmt.Sprintf("%x\r\n%s\r\n", len(s), s))
}

// End sends the final chunk.
func (x *Exchange) End() { x.Write("0\r\n\r\n") }

// Die closes the connection as a process does that ends: no final chunk.
func (x *Exchange) Die() {
	x.dead = true
	x.conn.Close()
}

// Reset closes the connection with a TCP reset, as kill -9 does with unread
// bytes in the socket.
func (x *Exchange) Reset() {
	if c, ok := x.conn.(*net.TCPConn); ok {
		_ = c.SetLinger(0)
	}
	x.Die()
}

// Answer is a handler with one whole answer.
func Answer(status int, contentType, body string) Handler {
	return func(x *Exchange) {
		x.Head(status, "Content-Type: "+contentType, fmt.Sprintf("Content-Length: %d", len(body)))
		x.Write(body)
	}
}

// JSON is a handler with one whole JSON answer of status 200.
func JSON(body string) Handler { return Answer(http.StatusOK, "application/json", body) }

// Events is a handler that streams events and ends cleanly. Each string is one
// chunk and one write, whether or not it is a whole event.
func Events(chunks ...string) Handler {
	return func(x *Exchange) {
		x.Stream()
		for _, c := range chunks {
			x.Chunk(c)
			time.Sleep(time.Millisecond) // so that the writes are not read as one
		}
		x.End()
	}
}

// Echo answers with a chat completion whose content is the request body's
// length; the request itself is in Server.Requests.
func Echo(x *Exchange) {
	JSON(Completion(x.Request.Model, fmt.Sprintf("%d bytes", len(x.Request.Body))))(x)
}

// SlowTokens is a handler that streams a token every d until the client leaves
// or release is closed; then it ends the answer as a model does that is done.
func SlowTokens(d time.Duration, release <-chan struct{}) Handler {
	return func(x *Exchange) {
		x.Stream()
		x.Chunk(Role(x.Request.Model))
		for n := 1; ; n++ {
			select {
			case <-release:
				x.Chunk(Finish(x.Request.Model, "stop"))
				x.Chunk(Done)
				x.End()
				return
			case <-x.Gone():
				return
			case <-time.After(d):
				x.Chunk(Delta(x.Request.Model, fmt.Sprintf("token%d ", n)))
			}
		}
	}
}
