package link

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// HTTP/2 has the roles of the tunnel: the gateway asks, the connector answers.
// Each request of the tunnel is one POST of the gateway to requestPath, whose
// bodies are what a QUIC stream carries. The control stream is a POST to
// controlPath that lasts as long as the tunnel.
const (
	controlPath = "/control"
	requestPath = "/request"

	// resetField is the trailer of an answer that the connector gave up on: a
	// Code. What it sent before arrives, unlike with RST_STREAM.
	resetField = "Postern-Reset"
	// closeField is the trailer with which a side of the control stream closes
	// the tunnel: a CloseCode.
	closeField = "Postern-Close"
)

const (
	// A path that is silent for so long counts as lost after idleTimeout, as over
	// QUIC.
	readIdleTimeout = idleTimeout - pingTimeout
	pingTimeout     = 10 * time.Second
	// stallTimeout is how long a peer may take nothing of what is sent.
	stallTimeout = 30 * time.Second
	// goodbyeTimeout is how long the other side of a closed connection has to
	// read why.
	goodbyeTimeout = time.Second
	// frameBytes is the most in one frame: what a TLS record holds. A parked
	// stream of x/net/http2 keeps a buffer of that size.
	frameBytes = 16 << 10
	// fieldBytes bounds the HTTP/2 header of an answer, and its trailer: all that
	// is in them is a status and a code. The answer's own header is in the body.
	fieldBytes = 8 << 10
)

var (
	errTransportClosed = errors.New("HTTP/2 gave up on it")
	errNoGoodbye       = errors.New("the other side ended it without a reason")
	errStalled         = errors.New("the other side has stopped reading")
	errCancelledHere   = errors.New("this side cancelled the stream")
)

// newHTTP2Transport returns what makes the gateway's end.
func newHTTP2Transport() (*http2.Transport, error) {
	t, err := http2.ConfigureTransports(&http.Transport{
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerConnection: maxConnectionWindow, MaxReceiveBufferPerStream: maxAnswerWindow},
	})
	if err != nil {
		return nil, err
	}
	t.DisableCompression = true
	t.StrictMaxConcurrentStreams = true
	t.ReadIdleTimeout = readIdleTimeout
	t.PingTimeout = pingTimeout
	t.WriteByteTimeout = stallTimeout
	t.MaxReadFrameSize = frameBytes
	t.MaxHeaderListSize = fieldBytes
	return t, nil
}

// newHTTP2Server returns what makes the connector's end, which allows so many
// streams for requests.
func newHTTP2Server(streams int) (*http2.Server, *http.Server) {
	return &http2.Server{
		MaxConcurrentStreams:         uint32(streams) + 1, // one is for control
		MaxUploadBufferPerConnection: connectionWindow,
		MaxUploadBufferPerStream:     maxRequestWindow,
		MaxReadFrameSize:             frameBytes,
		WriteByteTimeout:             stallTimeout,
	}, &http.Server{ErrorLog: log.New(io.Discard, "", 0)}
}

// http2Conn is what both ends of a connection have in common.
type http2Conn struct {
	raw      *tls.Conn
	ctx      context.Context
	endWith  context.CancelCauseFunc
	gone     chan struct{} // closed when the raw connection is closed
	goneOnce sync.Once
	parting  atomic.Bool  // part has begun
	lastRead atomic.Int64 // unix nanoseconds
	rtt      atomic.Int64 // time.Duration
}

func newHTTP2Conn(ctx context.Context, raw *tls.Conn) *http2Conn {
	c := &http2Conn{raw: raw, gone: make(chan struct{})}
	c.ctx, c.endWith = context.WithCancelCause(ctx)
	c.lastRead.Store(time.Now().UnixNano())
	return c
}

// Context implements [Conn].
func (c *http2Conn) Context() context.Context { return c.ctx }

// RemoteAddr implements [Conn].
func (c *http2Conn) RemoteAddr() net.Addr { return c.raw.RemoteAddr() }

// RTT implements [Conn].
func (c *http2Conn) RTT() time.Duration { return time.Duration(c.rtt.Load()) }

// Transport implements [Conn].
func (c *http2Conn) Transport() string { return TransportWebSocket }

// closed ends the connection on behalf of the other side.
func (c *http2Conn) closed(trailer http.Header) error {
	code, err := strconv.ParseUint(trailer.Get(closeField), 10, 32)
	if err != nil {
		c.lost(errNoGoodbye)
	} else {
		c.endWith(&CloseError{Code: CloseCode(code), Remote: true})
		c.drop()
	}
	return context.Cause(c.ctx)
}

// lost ends a connection that broke.
func (c *http2Conn) lost(err error) {
	silent := time.Since(time.Unix(0, c.lastRead.Load())) >= readIdleTimeout
	c.endWith(&lostError{err: err, silent: silent})
	c.drop()
}

// drop ends the raw connection. It does not wait for TLS to say good-bye, which
// a blocked write would hold up.
func (c *http2Conn) drop() {
	c.goneOnce.Do(func() {
		close(c.gone)
		_ = c.raw.NetConn().Close()
	})
}

// part ends the connection on behalf of this side. sayWhy ends the control
// stream with the code; the other side, which has read it, ends the connection.
func (c *http2Conn) part(code CloseCode, why string, sayWhy func()) {
	if c.ctx.Err() != nil || c.parting.Swap(true) { // only one may write the trailer
		return
	}
	c.endWith(&CloseError{Code: code, Why: why})
	go func() {
		late := time.AfterFunc(goodbyeTimeout, c.drop)
		defer late.Stop()
		sayWhy()
		<-c.gone
	}()
}

// explain returns why a stream failed.
func (c *http2Conn) explain(err error) error {
	var reset http2.StreamError
	switch {
	case c.ctx.Err() != nil:
		return context.Cause(c.ctx)
	case errors.As(err, &reset) && reset.Code == http2.ErrCodeRefusedStream:
		return resetError(CodeDraining) // it never came to a handler
	case errors.As(err, &reset):
		return resetError(CodeInternal)
	default:
		return &lostError{err: err}
	}
}

// watched is the raw connection for HTTP/2: its end is noticed first.
type watched struct {
	*tls.Conn
	conn *http2Conn
}

// Read implements net.Conn.
func (w watched) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if err != nil {
		w.conn.lost(err)
	} else {
		w.conn.lastRead.Store(time.Now().UnixNano())
	}
	return n, err
}

// Close implements net.Conn. HTTP/2 calls it after an error, and when its pings
// are not answered.
func (w watched) Close() error {
	w.conn.lost(errTransportClosed)
	return nil
}

// deadlines are those of a control stream. HTTP/2 has none that end with the
// Read or Write that they are for.
type deadlines struct {
	conn        Conn
	read, write atomic.Pointer[time.Time]
}

// SetDeadline implements [ControlStream].
func (d *deadlines) SetDeadline(t time.Time) error {
	d.read.Store(&t)
	return d.SetWriteDeadline(t)
}

// SetWriteDeadline implements [ControlStream].
func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.write.Store(&t)
	return nil
}

// reading and writing guard one Read or Write, until stop is called: when its
// time is up, the connection is closed.
func (d *deadlines) reading() (stop func() bool) { return d.guard(&d.read, CloseProtocol) }
func (d *deadlines) writing() (stop func() bool) { return d.guard(&d.write, CloseLost) }

func (d *deadlines) guard(at *atomic.Pointer[time.Time], code CloseCode) (stop func() bool) {
	t := at.Load()
	if t == nil || t.IsZero() {
		return func() bool { return true }
	}
	return time.AfterFunc(time.Until(*t), func() { _ = d.conn.Close(code, errStalled.Error()) }).Stop
}

// resetOf returns the reset in the trailer of an answer, or io.EOF if there is
// none.
func resetOf(trailer http.Header) error {
	v := trailer[resetField]
	if len(v) == 0 {
		return io.EOF
	}
	code, err := strconv.ParseUint(v[0], 10, 32)
	if err != nil {
		code = uint64(CodeInternal)
	}
	return resetError(code)
}

// controlError explains an error of reading the control stream. A clean end has
// the reason of the close in its trailer, which is there by then.
func (c *http2Conn) controlError(err error, trailer http.Header) error {
	switch {
	case err == nil:
		return nil
	case err == io.EOF:
		return c.closed(trailer)
	default:
		return c.explain(err)
	}
}
