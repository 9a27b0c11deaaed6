package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// http2Connector is the connector's end, the server of HTTP/2.
type http2Connector struct {
	*http2Conn
	requests chan *connectorStream
	arrived  chan *connectorControl // the control stream, once

	control atomic.Pointer[connectorControl]
}

var _ Conn = (*http2Connector)(nil)

// HTTP2Connector makes the connector's end of a tunnel over a connection to the
// gateway. It allows as many streams for requests as [RequestStreams] has returned.
// ctx bounds the time until it returns. If it fails, raw is closed.
func HTTP2Connector(ctx context.Context, raw net.Conn, config *tls.Config, streams int) (Conn, error) {
	secure := tls.Client(raw, config)
	start := time.Now()
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("shaking hands with the gateway: %w", err)
	}
	c := &http2Connector{
		http2Conn: newHTTP2Conn(context.WithoutCancel(ctx), secure),
		requests:  make(chan *connectorStream),
		arrived:   make(chan *connectorControl),
	}
	c.rtt.Store(int64(time.Since(start))) // TLS 1.3 takes one
	server, base := newHTTP2Server(streams)
	go func() {
		server.ServeConn(watched{secure, c.http2Conn}, &http2.ServeConnOpts{Context: c.ctx, BaseConfig: base, Handler: c})
		c.lost(errTransportClosed)
	}()
	return c, nil
}

// ServeHTTP takes a stream and keeps it until the request is done.
func (c *http2Connector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h["Date"], h["Content-Type"] = nil, nil
	if r.URL.Path == controlPath {
		s := &connectorControl{connector: c, w: w, r: r, done: make(chan struct{})}
		s.conn = c
		if !c.control.CompareAndSwap(nil, s) {
			w.WriteHeader(http.StatusConflict)
			return
		}
		s.begin()
		context.AfterFunc(c.ctx, func() {
			<-c.gone
			s.finish(CloseLost)
		})
		select {
		case c.arrived <- s:
		case <-s.done:
		}
		<-s.done
		return
	}
	s := &connectorStream{conn: c, w: w, r: r, done: make(chan struct{})}
	select {
	case c.requests <- s:
		<-s.done
		if c.ctx.Err() != nil {
			<-c.gone // the tunnel's end shall not look like that of a request
		}
	case <-r.Context().Done():
	}
}

// TryOpenStream implements [Conn]: only a gateway makes requests.
func (c *http2Connector) TryOpenStream() (Stream, error) { return nil, ErrNoCredit }

// OpenStream implements [Conn]: only a gateway makes requests.
func (c *http2Connector) OpenStream(context.Context) (Stream, error) { return nil, ErrNoCredit }

// AcceptStream implements [Conn].
func (c *http2Connector) AcceptStream(ctx context.Context) (Stream, error) {
	select {
	case s := <-c.requests:
		return s, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-c.ctx.Done():
		return nil, context.Cause(c.ctx)
	}
}

// Control implements [Conn].
func (c *http2Connector) Control(ctx context.Context) (ControlStream, error) {
	select {
	case s := <-c.arrived:
		return s, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-c.ctx.Done():
		return nil, context.Cause(c.ctx)
	}
}

// Close implements [Conn].
func (c *http2Connector) Close(code CloseCode, why string) error {
	c.part(code, why, func() {
		if control := c.control.Load(); control != nil {
			control.finish(code)
			return
		}
		c.drop()
	})
	return nil
}

// connectorControl is the control stream.
type connectorControl struct {
	deadlines
	connector *http2Connector
	r         *http.Request

	mu       sync.Mutex // held by a Write; protects what follows
	w        http.ResponseWriter
	finished bool
	done     chan struct{} // closed when w is no longer used
}

// Read implements [ControlStream].
func (s *connectorControl) Read(p []byte) (int, error) {
	defer s.reading()()
	n, err := s.r.Body.Read(p)
	return n, s.connector.controlError(err, s.r.Trailer)
}

// Write implements [ControlStream].
func (s *connectorControl) Write(p []byte) (int, error) {
	defer s.writing()()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.finished || s.connector.ctx.Err() != nil {
		return 0, s.connector.explain(net.ErrClosed)
	}
	n, err := writeNow(s.w, p)
	if err != nil {
		err = s.connector.explain(err)
	}
	return n, err
}

// Close implements [ControlStream].
func (s *connectorControl) Close() error { return s.connector.Close(CloseNone, "") }

// begin lets the gateway know that the stream is there, if it still is: Close may
// have come first.
func (s *connectorControl) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.finished {
		s.w.(http.Flusher).Flush()
	}
}

// finish ends the stream with a code.
func (s *connectorControl) finish(code CloseCode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.finished {
		s.finished = true
		s.w.Header().Set(http2.TrailerPrefix+closeField, strconv.FormatUint(uint64(code), 10))
		close(s.done)
	}
}

// writeNow writes p and all before it.
func writeNow(w http.ResponseWriter, p []byte) (int, error) {
	n, err := w.Write(p)
	if err != nil {
		return n, err
	}
	return n, w.(interface{ FlushError() error }).FlushError()
}

// connectorStream is one request.
type connectorStream struct {
	conn *http2Connector
	w    http.ResponseWriter
	r    *http.Request

	stopped  atomic.Bool // reading
	finished atomic.Bool // writing
	done     chan struct{}
}

var _ Stream = (*connectorStream)(nil)

// Read implements [Stream].
func (s *connectorStream) Read(p []byte) (int, error) {
	n, err := s.r.Body.Read(p)
	if err != nil && err != io.EOF {
		err = s.explain()
	}
	return n, err
}

// explain returns why the stream failed. The gateway gives no reasons: it has
// only RST_STREAM.
func (s *connectorStream) explain() error {
	switch {
	case s.conn.ctx.Err() != nil:
		return context.Cause(s.conn.ctx)
	case s.stopped.Load():
		return errCancelledHere
	default:
		return resetError(CodeCancelled)
	}
}

// Write implements [Stream].
func (s *connectorStream) Write(p []byte) (int, error) {
	if s.finished.Load() {
		return 0, errCancelledHere
	}
	n, err := writeNow(s.w, p)
	if err != nil || s.r.Context().Err() != nil {
		err = s.explain()
	}
	return n, err
}

// Close implements [Stream].
func (s *connectorStream) Close() error {
	if s.r.Context().Err() != nil {
		return s.explain()
	}
	s.finish()
	return nil
}

// finish ends the answer, in which nothing may be written afterwards.
func (s *connectorStream) finish() {
	if !s.finished.Swap(true) {
		close(s.done)
	}
}

// CancelRead implements [Stream]: it wakes a Read.
func (s *connectorStream) CancelRead(streamCode) {
	s.stopped.Store(true)
	_ = s.r.Body.Close()
}

// CancelWrite implements [Stream]: what was written before arrives.
func (s *connectorStream) CancelWrite(code streamCode) {
	if !s.finished.Load() {
		s.w.Header().Set(http2.TrailerPrefix+resetField, strconv.FormatUint(uint64(code), 10))
		s.finish()
	}
}

// SetReliableBoundary implements [Stream].
func (s *connectorStream) SetReliableBoundary() {}

// SetReadDeadline implements [Stream]: CancelRead wakes a Read here.
func (s *connectorStream) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements [Stream].
func (s *connectorStream) SetWriteDeadline(time.Time) error { return errors.ErrUnsupported }

// Context implements [Stream].
func (s *connectorStream) Context() context.Context { return s.r.Context() }
