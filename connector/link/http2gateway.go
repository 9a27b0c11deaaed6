package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// rttAge is when the round-trip time is measured again, on demand.
const rttAge = 10 * time.Second

// http2Gateway is the gateway's end, the client of HTTP/2.
type http2Gateway struct {
	*http2Conn
	client *http2.ClientConn

	mu       sync.Mutex
	control  *gatewayControl
	measured time.Time // when the last measurement of the RTT began
}

var _ Conn = (*http2Gateway)(nil)

// HTTP2Gateway makes the gateway's end of a tunnel over a connection that a
// connector made. ctx becomes the parent of the connection's; handshake bounds
// the time until it returns. If it fails, raw is closed.
func HTTP2Gateway(ctx, handshake context.Context, raw net.Conn, config *tls.Config) (Conn, error) {
	secure := tls.Server(raw, config)
	if err := secure.HandshakeContext(handshake); err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("shaking hands with a connector: %w", err)
	}
	transport, err := newHTTP2Transport()
	if err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("preparing HTTP/2: %w", err)
	}
	c := &http2Gateway{http2Conn: newHTTP2Conn(ctx, secure)}
	c.client, err = transport.NewClientConn(&frameFilter{Conn: watched{secure, c.http2Conn}})
	if err != nil {
		c.lost(err)
		return nil, fmt.Errorf("beginning HTTP/2: %w", err)
	}
	return c, nil
}

// TryOpenStream implements [Conn]. A stream begins with its first Read, which
// waits if the connector allows no more.
func (c *http2Gateway) TryOpenStream() (Stream, error) {
	if c.ctx.Err() != nil {
		return nil, context.Cause(c.ctx)
	}
	return c.newStream(), nil
}

// OpenStream implements [Conn].
func (c *http2Gateway) OpenStream(context.Context) (Stream, error) { return c.TryOpenStream() }

// AcceptStream implements [Conn]: a connector makes no requests.
func (c *http2Gateway) AcceptStream(ctx context.Context) (Stream, error) {
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-c.ctx.Done():
		return nil, context.Cause(c.ctx)
	}
}

// RTT implements [Conn].
func (c *http2Gateway) RTT() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.measured) > rttAge && c.ctx.Err() == nil {
		c.measured = time.Now()
		go c.measure()
	}
	return c.http2Conn.RTT()
}

// measure asks for a sign of life.
func (c *http2Gateway) measure() {
	ctx, cancel := context.WithTimeout(c.ctx, pingTimeout)
	defer cancel()
	start := time.Now()
	if err := c.client.Ping(ctx); err == nil {
		c.rtt.Store(int64(time.Since(start)))
	}
}

// Close implements [Conn].
func (c *http2Gateway) Close(code CloseCode, why string) error {
	c.part(code, why, func() {
		c.mu.Lock()
		control := c.control
		c.mu.Unlock()
		if control == nil {
			c.drop()
			return
		}
		control.request.Trailer.Set(closeField, strconv.FormatUint(uint64(code), 10))
		control.up.end()
	})
	return nil
}

// newPost returns the request of a stream. HTTP/2 would add unneeded
// fields.
func newPost(ctx context.Context, path string, body io.ReadCloser) *http.Request {
	r := &http.Request{
		Method: http.MethodPost,
		URL:    &url.URL{Scheme: "https", Host: "postern", Path: path},
		Header: http.Header{"User-Agent": {""}},
		Body:   body,
	}
	return r.WithContext(ctx)
}

// gatewayControl is the control stream.
type gatewayControl struct {
	deadlines
	gateway *http2Gateway
	up      upload
	request *http.Request
	answer  *http.Response
}

// Control implements [Conn]: the stream is opened by this side, but belongs to
// the connector.
func (c *http2Gateway) Control(ctx context.Context) (ControlStream, error) {
	s := &gatewayControl{gateway: c}
	s.conn = c
	s.up.init()
	life, end := context.WithCancel(context.WithoutCancel(c.ctx)) // a close is sent on it
	s.request = newPost(life, controlPath, &s.up)
	s.request.Trailer = http.Header{closeField: nil}
	stop := context.AfterFunc(ctx, end)
	answer, err := c.client.RoundTrip(s.request)
	if err == nil && !stop() {
		_ = answer.Body.Close()
		err = context.Cause(ctx)
	}
	if err != nil {
		end()
		return nil, fmt.Errorf("opening the control stream: %w", c.explain(err))
	}
	s.answer = answer
	context.AfterFunc(c.ctx, func() {
		<-c.gone
		end()
	})
	c.mu.Lock()
	c.control = s
	c.mu.Unlock()
	c.RTT() // begins to measure
	return s, nil
}

// Read implements [ControlStream].
func (s *gatewayControl) Read(p []byte) (int, error) {
	defer s.reading()()
	n, err := s.answer.Body.Read(p)
	return n, s.gateway.controlError(err, s.answer.Trailer)
}

// Write implements [ControlStream].
func (s *gatewayControl) Write(p []byte) (int, error) {
	if s.gateway.ctx.Err() != nil {
		return 0, context.Cause(s.gateway.ctx)
	}
	defer s.writing()()
	n, err := s.up.Write(p)
	if err != nil {
		err = s.gateway.explain(err)
	}
	return n, err
}

// Close implements [ControlStream].
func (s *gatewayControl) Close() error { return s.gateway.Close(CloseNone, "") }

// gatewayStream is one request.
type gatewayStream struct {
	conn   *http2Gateway
	ctx    context.Context
	cancel context.CancelFunc
	up     upload

	answer *http.Response // set by the first Read

	mu        sync.Mutex
	body      io.ReadCloser // of answer, for a cancellation
	cancelled bool
}

var _ Stream = (*gatewayStream)(nil)

func (c *http2Gateway) newStream() *gatewayStream {
	s := &gatewayStream{conn: c}
	s.ctx, s.cancel = context.WithCancel(c.ctx)
	s.up.init()
	return s
}

// Read implements [Stream]. The first one sends what was written so far: a small
// request is complete by then, and waits for its answer on the caller's
// goroutine.
func (s *gatewayStream) Read(p []byte) (int, error) {
	if s.answer == nil {
		if err := s.begin(); err != nil {
			s.end()
			return 0, s.explain(err)
		}
	}
	n, err := s.answer.Body.Read(p)
	if err != nil {
		if err == io.EOF {
			err = resetOf(s.answer.Trailer)
		} else {
			err = s.explain(err)
		}
		s.end()
	}
	return n, err
}

func (s *gatewayStream) begin() error {
	answer, err := s.conn.client.RoundTrip(newPost(s.ctx, requestPath, &s.up))
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancelled {
		go answer.Body.Close()
		return errCancelledHere
	}
	s.answer, s.body = answer, answer.Body
	return nil
}

// end gives back what the stream holds. HTTP/2 is done with it, or learns now
// that the rest is not wanted.
func (s *gatewayStream) end() {
	s.cancel()
	s.up.stop(errUploadStopped)
}

func (s *gatewayStream) explain(err error) error {
	s.mu.Lock()
	cancelled := s.cancelled
	s.mu.Unlock()
	if cancelled && s.conn.ctx.Err() == nil || errors.Is(err, errCancelledHere) {
		return errCancelledHere
	}
	return s.conn.explain(err)
}

// Write implements [Stream].
func (s *gatewayStream) Write(p []byte) (int, error) { return s.up.Write(p) }

// Close implements [Stream].
func (s *gatewayStream) Close() error {
	s.up.end()
	return nil
}

// CancelRead implements [Stream]: the connector sees RST_STREAM, which has no
// room for the code.
func (s *gatewayStream) CancelRead(streamCode) {
	s.mu.Lock()
	first, body := !s.cancelled, s.body
	s.cancelled = true
	s.mu.Unlock()
	if first {
		s.end()
		if body != nil {
			go body.Close() // returns the window; it may have to wait for a write
		}
	}
}

// CancelWrite implements [Stream]. Without a reason the answer may still come:
// it is only called so when the rest of the request is not read.
func (s *gatewayStream) CancelWrite(code streamCode) {
	if code == CodeNone.wire() {
		s.up.stop(errUploadStopped)
		return
	}
	s.CancelRead(code)
}

// SetReliableBoundary implements [Stream].
func (s *gatewayStream) SetReliableBoundary() {}

// SetReadDeadline implements [Stream]: CancelRead wakes a Read here.
func (s *gatewayStream) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements [Stream].
func (s *gatewayStream) SetWriteDeadline(time.Time) error { return errors.ErrUnsupported }

// Context implements [Stream].
func (s *gatewayStream) Context() context.Context { return s.ctx }
