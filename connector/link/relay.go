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

// RelayHeader is the header of a request that a peer relays to a connector.
type RelayHeader struct {
	Connector string // id, of at most 255 bytes; "": the request is for the peer itself
}

// append appends the header, or nothing if there is no connector.
func (t RelayHeader) append(b []byte) []byte {
	if t.Connector == "" {
		return b
	}
	return append(append(b, byte(len(t.Connector))), t.Connector...)
}

// ReadRelayHeader reads the header of a request of a peer. The request follows.
func ReadRelayHeader(s Stream) (header RelayHeader, err error) {
	var buf [255]byte
	read := func(n int) []byte {
		if err == nil {
			_, err = io.ReadFull(s, buf[:n])
		}
		return buf[:n]
	}
	header.Connector = string(read(int(read(1)[0])))
	if err != nil {
		return RelayHeader{}, fmt.Errorf("receiving a request of a peer: %w", streamError(context.Background(), err))
	}
	return header, nil
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

// forward copies one direction, and ends both sides of it. The buffer is small until a read fills it,
// because thousands of event streams may run.
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
			to.CancelWrite(to.code(err).wire())
			from.CancelRead(CodeNone.wire())
			return
		}
	}
}

// code returns the code for a stream after an error of the stream at the other end of the relay.
func (e end) code(err error) Code {
	var reset *quic.StreamError
	switch {
	case errors.As(err, &reset):
		return Code(reset.ErrorCode)
	case e.answer && errors.Is(err, net.ErrClosed): // true for all connection errors of quic-go
		return CodeTunnelLost
	default:
		return CodeCancelled // as after the deadline of stopReading
	}
}
