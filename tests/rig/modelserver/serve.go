// Package modelserver is a model server whose handler chooses each byte of an answer and its time. It speaks
// HTTP/1.1 on the bare connection. With net/http, a test could not die before the headers, split a rune over
// two writes, or omit the final chunk, and measurements would include its cost.
package modelserver

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"
)

// A Handler answers one request. After it returns the connection is used for
// the next request, unless it was closed.
type Handler func(x *Exchange)

// A Request is what the server received.
type Request struct {
	Method string
	Target string // as in the request line
	Host   string
	Header http.Header
	Body   []byte
	Model  string // the body's "model", for handlers that were chosen by it
}

// Bytes returns the request as an upstream sees it, for a comparison of all of
// it: request line, Host, the headers sorted by name, an empty line, the body.
func (r Request) Bytes() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s\nHost: %s\n", r.Method, r.Target, r.Host)
	var names []string
	for name := range r.Header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, v := range r.Header[name] {
			fmt.Fprintf(&b, "%s: %s\n", name, v)
		}
	}
	b.WriteByte('\n')
	b.Write(r.Body)
	return b.Bytes()
}

// Serve answers requests until ctx ends, when it closes all connections.
func Serve(ctx context.Context, l net.Listener, h Handler) error {
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			defer context.AfterFunc(ctx, func() { c.Close() })()
			r := bufio.NewReaderSize(c, 16<<10)
			for answer(c, r, h) {
				continue
			}
		}()
	}
}

// answer answers one request, and reports whether the connection may be used again.
func answer(c net.Conn, r *bufio.Reader, h Handler) (again bool) {
	req, err := readRequest(c, r)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	x := &Exchange{Request: req, conn: c, r: r, ctx: ctx, cancel: cancel}
	h(x)
	if x.dead || x.watched == nil {
		return !x.dead && !x.broken
	}
	// Free the watcher's read: the next request is this goroutine's to read.
	_ = c.SetReadDeadline(time.Now())
	<-x.watched
	_ = c.SetReadDeadline(time.Time{})
	return !x.Left()
}

// readRequest reads one whole request.
func readRequest(c net.Conn, r *bufio.Reader) (Request, error) {
	in, err := http.ReadRequest(r)
	if err != nil {
		return Request{}, err
	}
	if in.Header.Get("Expect") == "100-continue" {
		if _, err := io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return Request{}, err
		}
	}
	var body bytes.Buffer
	body.Grow(int(max(in.ContentLength, 0)) + bytes.MinRead)
	_, err = body.ReadFrom(in.Body)
	return Request{Method: in.Method, Target: in.RequestURI, Host: in.Host, Header: in.Header, Body: body.Bytes()}, err
}

// left waits until the client has closed its side (true), or the deadline or bytes of a next request have
// ended the wait (false).
func left(r *bufio.Reader) bool {
	_, err := r.Peek(1)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, net.ErrClosed) {
		return false
	}
	return err != nil
}
