package modelserver

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// An Exchange is a request being answered. Its methods write to the
// connection at once; after the client has left they do nothing.
type Exchange struct {
	Request Request

	conn    net.Conn
	r       *bufio.Reader
	ctx     context.Context
	cancel  context.CancelFunc
	watched chan struct{}             // closed when nothing waits for the client to leave; nil without Watch
	left    atomic.Pointer[time.Time] // when the client closed the connection
	dead    bool                      // the handler closed the connection
	broken  bool                      // a write has failed
}

// Watch makes the server notice when the client leaves. Tests that do not need it save the time.
func (x *Exchange) Watch() {
	x.watched = make(chan struct{})
	go func() {
		defer close(x.watched)
		if left(x.r) {
			now := time.Now()
			x.left.Store(&now)
			x.cancel()
		}
	}()
}

// Gone is closed when the client has closed the connection.
func (x *Exchange) Gone() <-chan struct{} { return x.ctx.Done() }

// Left reports whether the client has closed the connection.
func (x *Exchange) Left() bool { return x.left.Load() != nil }

// LeftAt returns when the client was noticed to have left; nil before that.
func (x *Exchange) LeftAt() *time.Time { return x.left.Load() }

// Write sends bytes unchanged, in one write.
func (x *Exchange) Write(s string) {
	if !x.dead && !x.Left() {
		_, err := io.WriteString(x.conn, s)
		x.broken = x.broken || err != nil
	}
}

// Broken reports whether a write has failed. That is noticed later than by Watch.
func (x *Exchange) Broken() bool { return x.broken }

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
func (x *Exchange) Head(status int, headers ...string) { x.Write(head(status, headers...)) }

func head(status int, headers ...string) string {
	line := "HTTP/1.1 " + strconv.Itoa(status) + " " + http.StatusText(status)
	return strings.Join(append([]string{line}, headers...), "\r\n") + "\r\n\r\n"
}

// Stream sends the headers of a streamed answer, chunked.
func (x *Exchange) Stream() {
	x.Head(http.StatusOK, "Content-Type: text/event-stream", "Transfer-Encoding: chunked")
}

// Chunk sends one chunk, in one write; nothing for no bytes, which would be the end.
func (x *Exchange) Chunk(s string) {
	if s != "" {
		x.Write(fmt.Sprintf("%x\r\n%s\r\n", len(s), s))
	}
}

// End sends the final chunk.
func (x *Exchange) End() { x.Write("0\r\n\r\n") }

// Die closes the connection without a final chunk, like a process that exits.
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

// Answer sends one whole answer, in one write.
func (x *Exchange) Answer(status int, contentType, body string) {
	x.Write(head(status, "Content-Type: "+contentType, "Content-Length: "+strconv.Itoa(len(body))) + body)
}
