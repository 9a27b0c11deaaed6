package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/panics"
)

// appendTo appends the header of a request to a connector of a peer: the length of its id in
// one byte, and the id. It appends nothing if the id is empty.
func appendTo(b []byte, connector string) []byte {
	if connector == "" {
		return b
	}
	return append(append(b, byte(len(connector))), connector...)
}

// ReadTo reads the header of a request of a peer, and returns the id of the connector. The
// request follows.
func ReadTo(s Stream) (connector string, err error) {
	var header [256]byte
	if _, err = io.ReadFull(s, header[:1]); err == nil {
		_, err = io.ReadFull(s, header[1:1+int(header[0])])
	}
	if err != nil {
		return "", fmt.Errorf("receiving a request of a peer: %w", streamError(context.Background(), err))
	}
	return string(header[1 : 1+int(header[0])]), nil
}

// Relay copies a request from a stream of a peer to one of a connector, and the answer back,
// with the codes of resets. It returns when both streams have ended.
func Relay(peer, connector Stream) {
	// The peer may cancel a request whose answer has not begun, or whose body is not read.
	stop := context.AfterFunc(peer.Context(), func() {
		stopReading(connector, CodeCancelled)
		connector.CancelWrite(CodeCancelled.wire())
	})
	p, c := end{peer, true}, end{connector, false}
	requested := make(chan *panics.Error, 1)
	go func() {
		defer func() { requested <- panics.Caught(recover()) }()
		forward(c, p)
	}()
	forward(p, c)
	stop()
	stopReading(peer, CodeNone) // the answer is complete: the rest of the request is not needed
	if p := <-requested; p != nil {
		panic(p)
	}
}

// end is a stream of a relay.
type end struct {
	Stream
	answer bool // an answer is written to it
}

// forward copies one direction, and ends both sides of it. Its buffer is small unless much
// arrives at once: thousands of event streams may run.
func forward(to, from end) {
	buf := getBuffer(smallBuffer)
	defer func() { buf.put() }()
	for {
		n, err := from.Read(buf.array)
		if n > 0 {
			if _, failed := to.Write(buf.array[:n]); failed != nil {
				stopReading(from, from.code(failed))
				to.CancelWrite(CodeNone.wire())
				return
			}
		}
		if n == smallBuffer {
			buf.put()
			buf = getBuffer(largeBuffer)
		}
		if err == io.EOF {
			_ = to.Close()
			return
		}
		if err != nil {
			if code := to.code(err); to.answer {
				reset(to, code)
			} else {
				to.CancelWrite(code.wire())
			}
			from.CancelRead(CodeNone.wire())
			return
		}
	}
}

// code returns the code for a stream after an error of the other one.
func (e end) code(err error) Code {
	var reset *quic.StreamError
	switch {
	case errors.As(err, &reset):
		return Code(reset.ErrorCode)
	case e.answer && errors.Is(err, net.ErrClosed): // all of quic-go's connection errors are
		return CodeTunnelLost
	default:
		return CodeCancelled // as after the deadline of stopReading
	}
}
