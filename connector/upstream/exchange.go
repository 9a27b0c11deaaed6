package upstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/textproto"
	"strings"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/panics"
)

// headBytes is room for the head of a request, so that it goes out with the beginning of the body.
const headBytes = 1 << 10

// exchange is one request and its answer, on a connection of its own. Thus nothing that the
// server sends can be taken for another answer, and no request meets a connection that the
// server has just closed. Streams take long, and llama.cpp closes their connections anyway.
type exchange struct {
	conn    net.Conn // to read and write
	raw     net.Conn // below TLS, or the same
	unwatch func() bool
	in      *bufio.Reader // reads the exchange
	left    int64         // bytes that may still be read
	failure error         // of the connection, once a read has failed
	whole   bool          // the answer was read to its end

	written chan struct{} // closed after the last write
	sent    int           // bytes of the request; valid then
	defect  *panics.Error // of the goroutine that writes; valid then
}

// begin sends the request on conn, which is raw or TLS on top of it. The end of ctx closes the
// connection.
func begin(ctx context.Context, conn, raw net.Conn, request *http.Request) *exchange {
	x := &exchange{conn: conn, raw: raw, left: link.MaxAnswerHead, written: make(chan struct{})}
	x.unwatch = context.AfterFunc(ctx, x.shut)
	x.in = bufio.NewReader(x)
	if request.ContentLength <= chunkBytes {
		x.send(request)
	} else {
		go x.send(request) // the server may answer before it has read all of it
	}
	return x
}

// send writes the request. If that fails, the server may have stopped reading to answer early.
// Reading returns that answer, or the error. A request of which no byte was sent has no answer.
func (x *exchange) send(request *http.Request) {
	defer close(x.written)
	defer func() {
		if x.defect = panics.Caught(recover()); x.defect != nil || x.sent == 0 {
			x.shut()
		}
	}()
	// The buffer of net/http has 4 KiB, which is many packets for a long conversation.
	out := bufio.NewWriterSize((*requestWriter)(x), int(min(request.ContentLength, chunkBytes))+headBytes)
	if request.Write(out) == nil {
		_ = out.Flush()
	}
}

// requestWriter is an exchange as the writer of its request.
type requestWriter exchange

// Write implements io.Writer.
func (w *requestWriter) Write(b []byte) (int, error) {
	n, err := w.conn.Write(b)
	w.sent += n
	return n, err
}

// Read reads from the connection.
func (x *exchange) Read(b []byte) (int, error) {
	if x.left == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := x.conn.Read(b[:min(int64(len(b)), x.left)])
	x.left -= int64(n)
	if err != nil && x.failure == nil {
		if x.failure = err; err == io.EOF {
			x.failure = io.ErrUnexpectedEOF
		}
	}
	return n, err
}

// receive reads the head of the answer, and skips informational ones. On an error it closes
// the connection. The error wraps ErrNotConnected if no byte of the request was sent.
func (x *exchange) receive(request *http.Request) (*answer, error) {
	for range link.MaxInformational {
		response, err := http.ReadResponse(x.in, request) //nolint:bodyclose // it only reads on x, which is closed
		if err == nil && response.StatusCode < 200 && response.StatusCode != http.StatusSwitchingProtocols {
			continue
		}
		if err == nil {
			err = check(response)
		} else {
			err = x.cause(err)
		}
		if err != nil {
			return nil, x.failed(err)
		}
		x.left = math.MaxInt64
		return newAnswer(response, x), nil
	}
	return nil, x.failed(link.Malformed("too many informational answers"))
}

// failed closes the connection, and adds ErrNotConnected to err if nothing was sent.
func (x *exchange) failed(err error) error {
	x.close()
	if x.sent == 0 && !errors.Is(err, link.ErrMalformed) {
		return fmt.Errorf("%w: %w", ErrNotConnected, err)
	}
	return err
}

// close closes the connection. The request is no longer read afterwards: its memory is released.
func (x *exchange) close() {
	x.unwatch()
	if tcp, ok := x.raw.(*net.TCPConn); ok && x.whole {
		// The side that closes first cannot use its port again for a minute or more (TIME_WAIT). Some
		// hundred requests a second would use up all ports. A reset spares that, and loses nothing: the
		// answer is here.
		_ = tcp.SetLinger(0)
	}
	x.shut()
	<-x.written // soon
	if x.defect != nil {
		panic(x.defect)
	}
}

// shut closes the connection at once; closing TLS waits to send an alert. It is safe for
// concurrent use.
func (x *exchange) shut() { _ = x.raw.Close() }

// cause returns the reason why net/http failed to read the answer. If the connection has not
// failed, the answer is malformed.
func (x *exchange) cause(err error) error {
	switch {
	case x.failure != nil:
		return x.failure
	case x.left == 0:
		return link.Malformed(fmt.Sprintf("the head is over %d bytes", link.MaxAnswerHead))
	}
	if _, ok := errors.AsType[textproto.ProtocolError](err); ok { // the text may have bytes of the answer
		return link.Malformed("a header line is malformed")
	}
	// net/http quotes them. They may be secret.
	what, _, _ := strings.Cut(err.Error(), `"`)
	return link.Malformed(strings.TrimSpace(what))
}

// check returns an error for an answer that net/http accepts, but that cannot be relayed.
func check(response *http.Response) error {
	fields := 0
	for _, values := range response.Header {
		fields += len(values)
	}
	switch {
	case response.ProtoMajor != 1:
		return link.Malformed("the version of the protocol")
	case response.StatusCode == http.StatusSwitchingProtocols:
		return link.Malformed("it switches protocols")
	case fields > link.MaxFields:
		return link.Malformed(fmt.Sprintf("the head has over %d fields", link.MaxFields))
	}
	return nil
}

// answer is an answer whose head was read.
type answer struct {
	*http.Response
	exchange *exchange
	endless  bool   // no length and no chunks, although its media type demands that it is whole
	tail     []byte // the last bytes of an endless stream
}

// doneEvent ends the streams of OpenAI's API.
const doneEvent = "data: [DONE]"

func newAnswer(response *http.Response, x *exchange) *answer {
	a := &answer{Response: response, exchange: x}
	if response.ContentLength < 0 && len(response.TransferEncoding) == 0 && response.Body != http.NoBody {
		a.endless = a.isStream() || link.HasMediaType(response.Header, "application/json")
	}
	return a
}

// Read reads available bytes of the answer's body. It returns io.EOF at the end of a
// complete answer, possibly with the last bytes.
func (a *answer) Read(b []byte) (int, error) {
	n, err := a.Body.Read(b)
	if a.endless && a.isStream() {
		a.tail = append(a.tail, b[:n]...)
		a.tail = append(a.tail[:0], a.tail[max(len(a.tail)-2*len(doneEvent), 0):]...)
	}
	switch {
	case err == io.EOF && (!a.endless || bytes.HasSuffix(bytes.TrimSpace(a.tail), []byte(doneEvent))):
		a.exchange.whole = true
	case err != nil:
		err = a.exchange.cause(err)
	}
	return n, err
}

// isSilent reports whether the answer is an event stream without any event yet.
func (a *answer) isSilent() bool { return a.isStream() && a.exchange.in.Buffered() == 0 }

func (a *answer) isStream() bool { return link.HasMediaType(a.Header, "text/event-stream") }

// Close closes the connection.
func (a *answer) Close() error {
	a.exchange.close()
	return nil
}
